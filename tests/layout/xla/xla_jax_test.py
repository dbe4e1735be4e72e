#!/usr/bin/env python3
"""The sharding texts of `tessera show --xla` against those of JAX.

    tests/layout/xla/xla_jax_test.py

Random layouts on up to 16 devices. What JAX says of the same sharding must agree:
  - the HloSharding that it prints (devices in the order of the mesh),
  - the HloSharding that it reads from our text and prints again (any order),
  - the indices of each device, by the mesh and by our text,
  - the mesh and the sharding that it lowers to Shardy,
  - what Shardy reads, verifies and prints again.
Installs JAX into build/jax-venv, so this is a part of `make check-long` and not of
`make test`; says so and passes where JAX cannot be installed. TESSERA_BIN names the
folder of the programs; build/bin when unset.
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "bin"))
VENV = ROOT / "build" / "jax-venv"
JAX = "jax==0.10.2"  # the texts are read through names that JAX keeps private
DEVICES = 16
LAYOUTS = int(os.environ.get("TESSERA_JAX_LAYOUTS", "600"))
METADATA = re.compile(r' metadata=\{[^}]*\}')


class Case:
    """A random layout as the names of axes, and in the notation."""

    def __init__(self, seed):
        chance = random.Random(seed)
        self.sizes = []
        for _ in range(chance.randint(1, 4)):
            size = chance.choice([1, 2, 2, 3, 4])
            if size * product(self.sizes) <= DEVICES:
                self.sizes.append(size)
        self.names = [f"m{i}" for i in range(len(self.sizes))]
        self.ranks = list(range(product(self.sizes)))
        self.moved = chance.random() < 0.3
        if self.moved:
            chance.shuffle(self.ranks)
        ndim = chance.randint(0, 3)
        self.dims = [[] for _ in range(ndim)]
        self.unreduced = []
        self.op = chance.choice(["sum", "sum", "max", "min"])
        placements = ["R"] * len(self.sizes)
        for axis in range(len(self.sizes)):
            kind = chance.randint(-2, ndim - 1)
            if kind == -1:
                self.unreduced.append(axis)
                placements[axis] = f"P({self.op})"
            elif kind >= 0:
                self.dims[kind].append(axis)
        self.shape = []
        for dim, axes in enumerate(self.dims):
            chance.shuffle(axes)
            for turn, axis in enumerate(axes):
                placements[axis] = f"S({dim})[{turn}]"
            self.shape.append(chance.randint(1, 3) * product(
                self.sizes[axis] for axis in axes))
        mesh = ", ".join(f"{n}={s}" for n, s in zip(self.names, self.sizes))
        ranks = "; ranks " + " ".join(map(str, self.ranks)) if self.moved else ""
        self.layout = f"{self.shape} {' '.join(placements)} @ mesh({mesh}{ranks})"

    def show(self, layout=None):
        done = subprocess.run(
            [str(BIN / "tessera"), "show", "--xla", "--json", layout or self.layout],
            capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return json.loads(done.stdout)

    def in_mesh_order(self):
        return re.sub(r"; ranks [\d ]+", "", self.layout)


def product(numbers):
    result = 1
    for number in numbers:
        result *= number
    return result


def boxes_of(index, shape):
    return [list(piece.indices(size)[:2]) for piece, size in zip(index, shape)]


class JaxTest(unittest.TestCase):
    """Each test walks over all cases; JAX is imported by main()."""

    @classmethod
    def setUpClass(cls):
        cls.cases = [Case(seed) for seed in range(LAYOUTS)]
        cls.shown = [case.show() for case in cls.cases]
        cls.compared = {}

    @classmethod
    def tearDownClass(cls):
        for what, count in cls.compared.items():
            print(f"{what}: {count} of {LAYOUTS} layouts", file=sys.stderr)

    def each(self, what):
        """Goes through the cases; counts those that the test did not leave out."""
        for case, shown in zip(self.cases, self.shown):
            with self.subTest(case.layout):
                yield case, shown
        self.assertGreater(self.compared.get(what, 0), LAYOUTS // 4)

    def count(self, what):
        self.compared[what] = self.compared.get(what, 0) + 1

    def named_sharding(self, case):
        devices = numpy.array(jax.devices())[case.ranks].reshape(case.sizes)
        mesh = jax.sharding.Mesh(
            devices, case.names,
            axis_types=(jax.sharding.AxisType.Explicit,) * len(case.names))
        spec = [tuple(case.names[axis] for axis in axes) or None
                for axes in case.dims]
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(
            *spec, unreduced={case.names[axis] for axis in case.unreduced}))

    def test_jax_prints_the_same_hlo_sharding(self):
        what = "HloSharding of a NamedSharding"
        for case, _ in self.each(what):
            ours = case.show(case.in_mesh_order())["xla"]["hlo_sharding"]
            theirs = self.named_sharding(case)._to_xla_hlo_sharding(len(case.shape))
            self.assertEqual(METADATA.sub("", ours), str(theirs))
            self.count(what)

    def test_xla_reads_the_text_and_prints_it_again(self):
        what = "HloSharding read by XLA"
        for _, shown in self.each(what):
            ours = shown["xla"]["hlo_sharding"]
            theirs = xla_client.HloSharding.from_string(ours)
            self.assertEqual(METADATA.sub("", ours), str(theirs))
            self.count(what)

    def test_devices_hold_what_the_mesh_says(self):
        what = "indices by the mesh"
        for case, shown in self.each(what):
            if not case.unreduced:
                self.check_indices(case, shown, self.named_sharding(case))
                self.count(what)

    def test_devices_hold_what_the_text_says(self):
        what = "indices by the text"
        for case, shown in self.each(what):
            if not case.unreduced:
                sharding = GSPMDSharding(
                    tuple(jax.devices()[:len(case.ranks)]),
                    xla_client.HloSharding.from_string(shown["xla"]["hlo_sharding"]))
                self.check_indices(case, shown, sharding)
                self.count(what)

    def check_indices(self, case, shown, sharding):
        held = {device.id: boxes_of(index, case.shape) for device, index
                in sharding.devices_indices_map(tuple(case.shape)).items()}
        self.assertEqual(len(held), len(case.ranks))
        for rank in shown["ranks"]:
            box, = rank["boxes"]
            self.assertEqual(
                held[rank["rank"]],
                [[begin, begin + size]
                 for begin, size in zip(box["offsets"], box["sizes"])])

    def test_jax_lowers_to_the_same_shardy(self):
        what = "Shardy of a lowered program"
        for case, shown in self.each(what):
            if case.moved or case.unreduced:
                continue
            text = jax.jit(
                lambda x: x, in_shardings=self.named_sharding(case)).lower(
                    jax.ShapeDtypeStruct(case.shape, "float32")).as_text()
            for line in shown["xla"]["shardy"].splitlines():
                self.assertIn(line, text)
            self.count(what)

    def test_shardy_reads_verifies_and_prints_the_text(self):
        what = "Shardy read by Shardy"
        with mlir.make_ir_context():
            for case, shown in self.each(what):
                mesh, sharding = shown["xla"]["shardy"].splitlines()
                if re.search(r"unreduced=m", sharding):
                    continue  # newer than this JAX
                of = "x".join(map(str, case.shape + ["f32"]))
                module = ir.Module.parse(
                    f"{mesh}\nfunc.func private @f(tensor<{of}> "
                    f"{{sdy.sharding = {sharding}}})")
                self.assertTrue(module.operation.verify())
                self.assertIn(mesh + "\n", str(module))
                self.assertIn(sharding, str(module))
                self.count(what)


def installed():
    """Makes the environment where it is missing; says what went wrong, if anything."""
    python = VENV / "bin" / "python"
    probe = [str(python), "-c", f"import jax; assert jax.__version__ == '{JAX[5:]}'"]
    if python.exists() and subprocess.run(probe, capture_output=True).returncode == 0:
        return ""
    for command in ([sys.executable, "-m", "venv", str(VENV)],
                    [str(python), "-m", "pip", "install", "-q", JAX]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode != 0:
            return (done.stderr or done.stdout).strip().splitlines()[-1]
    return ""


def main():
    if pathlib.Path(sys.prefix).resolve() != VENV.resolve():
        wrong = installed()
        if wrong:
            print(f"skipped: {JAX} cannot be installed into {VENV.relative_to(ROOT)}: "
                  f"{wrong}")
            return 0
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
        os.environ["JAX_PLATFORMS"] = "cpu"
        python = str(VENV / "bin" / "python")
        return subprocess.run([python, "-B", __file__, *sys.argv[1:]]).returncode
    global jax, numpy, xla_client, GSPMDSharding, mlir, ir
    import jax
    import numpy
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir
    from jax._src.sharding_impls import GSPMDSharding
    unittest.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
