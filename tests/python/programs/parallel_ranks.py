"""The plans of parallel_test.py on the ranks that a launcher started."""
import copy
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import models  # noqa: E402
import parallel_test as cases  # noqa: E402
import pytest  # noqa: E402
import tessera  # noqa: E402


def main() -> None:
    world = tessera.init()
    mesh = tessera.init_device_mesh("cpu", (world.size(),), ("tp",))

    module, x, y = models.make("transformer")
    tessera.parallelize_module(module, mesh, cases.train_plan())
    tessera.distribute_module(module, mesh)
    losses = models.train("transformer", module, tessera.distribute_tensor(x, mesh, "R"),
                          tessera.distribute_tensor(y, mesh, "R"))
    assert losses == pytest.approx(models.train_plain("transformer"), rel=1e-10)

    block = copy.deepcopy(cases.BLOCK)
    block.heads //= mesh.size()
    tessera.parallelize_module(block, mesh, cases.sequence_plan())
    sequence = tessera.distribute_tensor(cases.SEQUENCE, mesh, "S(1)")
    wanted = cases.train_block(
        copy.deepcopy(cases.BLOCK), cases.SEQUENCE, lambda t: (t * t).mean())
    got = cases.train_block(block, sequence, lambda t: (t * t).mean())
    assert got == pytest.approx(wanted, rel=1e-10)
    print(f"rank {tessera.rank()} of {world.size()} on {world.engine()}: as on one rank",
          flush=True)


tessera.run(main)
