"""Programs of tutorials/ as they are, and with their imports changed to
tessera.torch_compat, in the processes of one job; prints what both found.

  changed_import.py RANK SIZE STORE-FILE [NAME...]
"""
import json
import os
import pathlib
import re
import sys

import torch.distributed as dist

TUTORIALS = pathlib.Path(__file__).resolve().parent / "tutorials"
# What `import tessera.torch_compat` stands for.
CHANGED = [(r"from torch\.distributed\.(tensor(\.\w+)*|device_mesh|fsdp) import",
            "from tessera.torch_compat import"),
           (r"import torch\.distributed\.checkpoint as",
            "from tessera.torch_compat import checkpoint as")]


def read(change: bool) -> dict[str, str]:
    sources = {path.stem: path.read_text() for path in sorted(TUTORIALS.glob("*.py"))}
    for pattern, replacement in CHANGED if change else []:
        sources = {name: re.sub(pattern, replacement, text)
                   for name, text in sources.items()}
    return sources


def run(name: str, sources: dict[str, str], folder: str) -> list[float]:
    names = {"__name__": name, "SOURCES": sources, "FOLDER": folder}
    exec(compile(sources[name], f"{name}.py", "exec"), names)
    return names["main"]()


rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                        world_size=size)
for name in sys.argv[4:] or sorted(read(False)):
    found = {}
    for change in (False, True):
        folder = os.path.join(os.path.dirname(store), f"{name}-{change}")
        found["tessera" if change else "torch"] = run(name, read(change), folder)
        if change:
            assert "torch.distributed.tensor" not in read(True)[name]
    print(json.dumps({"name": name, **found}), flush=True)
dist.destroy_process_group()
