"""Makes what the fuzz targets of readers start from, out of real files.

  make_seeds.py FOLDER IO_PROBE

PyTorch and the safetensors package write checkpoints, IO_PROBE rewrites them in our
own format; FOLDER/TARGET gets the parts that TARGET reads, FOLDER/TARGET.dict the
words in them. The first byte of a seed chooses what is read; see the targets.
"""
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

warnings.filterwarnings("ignore")


def states():
    """State dicts, a feature each."""
    yield {"w": torch.arange(6.).reshape(2, 3)}
    yield {"z": torch.tensor(1.5), "e": torch.zeros(0, 3), "t": torch.ones(2, 3).t()}
    yield {f"d{i}": torch.zeros(2).to(dtype) for i, dtype in enumerate(
        (torch.bool, torch.int64, torch.bfloat16, torch.float8_e4m3fn, torch.uint16))}
    yield {"a": {"b": [torch.ones(1), 3], "c": (1, 2.5)}, "s": "text", "n": None,
           "bytes": b"\x00\xff", "big": 2**40, "true": True, "list": [1, {"k": "v"}]}


class Seeds:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.count = 0
        self.words = {}

    def add(self, target, choice, data):
        place = self.folder / target
        place.mkdir(parents=True, exist_ok=True)
        (place / f"seed{self.count}").write_bytes(bytes([choice]) + data)
        self.count += 1
        words = self.words.setdefault(target, set())
        words.update(re.findall(rb"[A-Za-z_.]{3,40}", data))

    def write_dictionaries(self):
        for target, words in self.words.items():
            lines = []
            for word in sorted(words):
                lines.append('"%s"' % word.decode())
            if target == "dcp_metadata":
                lines += ['"\\x%02x"' % op for op in b"\x80\x81\x85\x86\x87\x88\x89\x8a"
                          b"\x8b\x8c\x8d\x93\x94\x95(.NJKMGXBC)t]ae}sucRbQqrhj"]
            if target == "stored_zip":
                lines += ['"PK\\x%02x\\x%02x"' % pair for pair in
                          ((1, 2), (3, 4), (5, 6), (6, 6), (6, 7), (7, 8))]
            (self.folder / f"{target}.dict").write_text("\n".join(lines) + "\n")


def add_dcp(seeds, path):
    seeds.add("dcp_metadata", 0, (path / ".metadata").read_bytes())
    metadata = dcp.FileSystemReader(str(path)).read_metadata()
    for info in metadata.storage_data.values():
        data = (path / info.relative_path).read_bytes()
        item = data[info.offset:info.offset + info.length]
        seeds.add("stored_zip", 0, item)
        start = item.find(b"\x80\x02")
        seeds.add("dcp_metadata", 1, item[start:item.index(b"PK", start)])


def add_safetensors(seeds, path):
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    size = struct.pack("<I", len(data) - 8 - length)
    seeds.add("safetensors", 0, size + data[8:8 + length])


def main(folder, probe):
    seeds = Seeds(folder)
    for number, state in enumerate(states()):
        with tempfile.TemporaryDirectory() as name:
            place = pathlib.Path(name)
            dcp.save(state, checkpoint_id=str(place / "python"), no_dist=True)
            add_dcp(seeds, place / "python")
            for ranks in (1, 3):
                for form in ("tessera", "dcp", "safetensors"):
                    to = place / f"{form}{ranks}"
                    subprocess.run([probe, "convert", place / "python", to, form,
                                    str(ranks)], check=True)
                manifest = (place / f"tessera{ranks}/manifest.jsonl").read_bytes()
                seeds.add("manifest", 0, manifest)
                lines = manifest[:manifest.rindex(b'{"xxh3"')]
                seeds.add("manifest", 1, lines)
                add_dcp(seeds, place / f"dcp{ranks}")
                for file in (place / f"safetensors{ranks}").glob("*.safetensors"):
                    add_safetensors(seeds, file)
            if number < 3:
                save_file({k: v.contiguous() for k, v in state.items()},
                          place / "library.safetensors")
                add_safetensors(seeds, place / "library.safetensors")
    seeds.add("safetensors", 1, b'{"metadata":{"total_size":4,"TESSERA_FILES":["b"]},'
              b'"weight_map":{"a":"model-00001-of-00002.safetensors"}}')
    seeds.add("safetensors", 2, b'{"a":{"saved_offsets":[0,2]}}')
    seeds.add("safetensors", 2, b'{"shapes":{"a":[4,2]},"paths":{"a":["x",1]},'
              b'"values":[{"name":"s","value":{"tuple":[1,2.5,null]}}]}')
    seeds.write_dictionaries()
    print(f"make_seeds: {seeds.count} seeds in {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
