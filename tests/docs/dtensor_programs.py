#!/usr/bin/env python3
"""The programs of PyTorch's DTensor in the docs print what their page says.

    python3 tests/docs/dtensor_programs.py FOLDER

FOLDER is what scripts/snippets.py wrote: NAME.dtensor.py, whose first line says on how
many ranks it runs, and NAME.txt. The ranks are processes that are forked after torch was
imported, and talk over Gloo on loopback. Exits with 77 where this torch has no Gloo.
"""
import os
import pathlib
import signal
import sys
import tempfile
import traceback

TIME_LIMIT_SECONDS = 60


def run_rank(code, name, rank, ranks, folder):
    """Runs the program as one rank; never returns."""
    import torch
    import torch.distributed as dist
    status = 1
    try:
        signal.alarm(TIME_LIMIT_SECONDS)
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), GLOO_SOCKET_IFNAME="lo")
        out = os.open(folder / f"out{rank}", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(out, 1)
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
        dist.barrier()  # nobody leaves while others still read from it
        dist.destroy_process_group()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(program):
    """Returns what the ranks printed, one after the other; nothing when one failed."""
    code = program.read_text()
    ranks = int(code.split("\n")[0].removeprefix("# ranks: "))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        children = []
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                run_rank(code, str(program), rank, ranks, folder)
            children.append(child)
        if any([os.waitpid(child, 0)[1] for child in children]):
            return None
        return "".join((folder / f"out{rank}").read_text() for rank in range(ranks))


def main():
    import warnings
    warnings.simplefilter("ignore")
    import torch.distributed as dist
    if not (dist.is_available() and dist.is_gloo_available()):
        print("this torch has no Gloo")
        return 77
    import torch.distributed.tensor.debug  # noqa: F401
    import torch.distributed.tensor.parallel  # noqa: F401
    programs = sorted(pathlib.Path(sys.argv[1]).glob("*.dtensor.py"))
    failed = 0
    for program in programs:
        expected = pathlib.Path(str(program).removesuffix(".dtensor.py") + ".txt")
        printed = run(program)
        if printed is None or printed.strip() != expected.read_text().strip():
            failed += 1
            print(f"{program.name} printed\n{printed}"
                  f"the page says\n{expected.read_text()}", end="")
    print(f"{len(programs)} programs, {failed} failed")
    return 1 if failed or not programs else 0


if __name__ == "__main__":
    sys.exit(main())
