"""A program for every launcher: trains, and prints what rank 0 found."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import models  # noqa: E402
import tessera  # noqa: E402


def main() -> None:
    world = tessera.init()
    mesh = tessera.init_device_mesh("cpu", (world.size(),), ["tp"])
    got = models.train_on("mlp", mesh)
    if "--fail" in sys.argv and world.rank() == 1:
        raise LookupError("rank 1 gives up")
    world.communicator().barrier()
    if world.rank() == 0:
        print(world.engine(), world.size(), *got)


tessera.run(main)
