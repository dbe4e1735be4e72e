"""Operators of torch.ops.prims: pointwise ones and reductions run on the shards."""
import tessera
import torch
import torch._prims  # defines them
from tessera import Partial, Replicate, Shard


def on_mesh(body, shape=(2, 2)):
    names = ["dp", "tp"][:len(shape)]
    size = torch.Size(shape).numel()
    return tessera.run_ranks(
        size, lambda: body(tessera.init_device_mesh("cpu", shape, names)), deadline=60)


def distinct(*shape, dtype=torch.float64):
    n = torch.Size(shape).numel()
    return ((torch.arange(n, dtype=torch.float64) * 0.739).sin() * 0.4 + 0.5) \
        .reshape(shape).to(dtype)


def counting(*shape):
    return torch.arange(1, torch.Size(shape).numel() + 1).reshape(shape)


UNARY = """abs acos acosh asin asinh atan atanh bessel_i0 bessel_i0e bessel_i1 bessel_i1e
    bessel_j0 bessel_j1 cbrt ceil clone cos cosh digamma erf erf_inv erfc
    erfcx exp exp2 expm1 floor isfinite lgamma log log10 log1p log2 ndtri neg reciprocal
    round rsqrt sign signbit sin sinh spherical_bessel_j0 sqrt tan tanh trunc""".split()
BINARY = """add atan2 div eq fmax fmin fmod ge gt hypot igamma igammac le lt maximum
    minimum mul ne nextafter pow remainder sub zeta""".split()
INTEGERS = """bitwise_and bitwise_or bitwise_xor div gcd shift_left
    shift_right_arithmetic""".split()


def is_same(a, b):
    return bool(((a == b) | ((a != a) & (b != b))).all()) and a.dtype == b.dtype


def pointwise_calls():
    """Every pointwise prim: its name, its plain tensors, its other arguments."""
    x, y = distinct(5, 3), distinct(5, 3).flip(0) + 1
    i, j = counting(5, 3), counting(5, 3).flip(0).remainder(5) + 1
    for name in UNARY:
        yield name, [x + 1 if name == "acosh" else x], []
    for name in BINARY:
        yield name, [x + 1.5, y] if name == "zeta" else [x, y], []
    for name in INTEGERS:
        yield name, [i, j], []
    yield "bitwise_not", [i], []
    yield "conj_physical", [torch.complex(x, y)], []
    yield "where", [x > 0.5, x, y], []
    yield "fill", [x], [2.5]
    yield "convert_element_type", [x], [torch.float32]


def test_pointwise_prims_run_on_the_shards():
    calls = list(pointwise_calls())

    def body(mesh):
        failures = []
        for placements in ([Shard(0), Shard(1)], [Shard(1), Replicate()]):
            for name, plain, rest in calls:
                prim = getattr(torch.ops.prims, name)
                cut = [tessera.distribute_tensor(t, mesh, placements) for t in plain]
                with tessera.CommLog() as log:
                    got = prim(*cut, *rest)
                same = is_same(tessera.full_tensor(got), prim(*plain, *rest))
                if log.count or tessera.placements(got) != placements or not same:
                    failures.append((name, str(log), str(tessera.placements(got)), same))
        return failures

    assert on_mesh(body) == [[]] * 4


def test_every_pointwise_prim_has_a_rule():
    """What torch._prims makes as elementwise is what this file lists."""
    names = {name for name, _, _ in pointwise_calls()}
    elementwise = {
        name for name in torch._prims.__all__
        if str(getattr(torch._prims, name, "")) and hasattr(torch.ops.prims, name)
        and list(a.name for a in getattr(torch.ops.prims, name).default._schema.arguments)
        in (["self"], ["self", "other"])}
    # two results; views
    assert elementwise - names <= {"frexp", "real", "imag"}


def test_addends_pass_linear_prims_and_no_others():
    def body(mesh):
        parts = torch.full((3, 2), float(tessera.rank() + 1))
        x = tessera.from_local(parts, mesh, [Partial(), Replicate()])
        i = tessera.from_local(
            torch.full((3, 2), 2 * mesh.local_rank("dp") + 1), mesh, [Partial(), Replicate()])
        two = tessera.distribute_tensor(torch.full((3, 2), 2.0), mesh, [Replicate()] * 2)
        few = tessera.distribute_tensor(torch.full((3, 2), 2), mesh, [Replicate()] * 2)
        with tessera.CommLog() as log:
            kept = [torch.ops.prims.neg(x), torch.ops.prims.mul(x, two),
                    torch.ops.prims.div(x, two), torch.ops.prims.add(x, x)]
        assert not log.count, log
        assert all(tessera.placements(t) == [Partial(), Replicate()] for t in kept)
        # 1 / 2 and 3 / 2 are 0 and 1, but 4 / 2 is 2
        assert tessera.full_tensor(torch.ops.prims.div(i, few)).unique().tolist() == [2]
        with tessera.CommLog() as log:
            root = torch.ops.prims.sqrt(x)
        assert log.count == 1
        assert torch.equal(tessera.full_tensor(root), tessera.full_tensor(x).sqrt())

    on_mesh(body)


def test_reductions_of_cut_dims_are_addends_and_extremes():
    x = distinct(5, 3)

    def body(mesh):
        cut = tessera.distribute_tensor(x, mesh, [Shard(0)])
        for name, op in (("sum", "sum"), ("prod", "product"), ("amax", "max"),
                         ("amin", "min")):
            prim = getattr(torch.ops.prims, name)
            for dims in ([0], [1], [0, 1], []):
                with tessera.CommLog() as log:
                    got = prim(cut, dims)
                assert not log.count, (name, dims, str(log))
                torch.testing.assert_close(tessera.full_tensor(got), prim(x, dims))
                # a product over no dims is the tensor
                whole = 0 in dims or (not dims and name != "prod")
                want = Partial(op) if whole else Shard(0)
                assert tessera.placements(got) == [want], (name, dims)
        torch.testing.assert_close(
            tessera.full_tensor(torch.ops.prims.var(cut, [0], 1.0)),
            torch.ops.prims.var(x, [0], 1.0))

    on_mesh(body, (4,))


def test_prims_that_are_defined_after_the_first_call_follow_too():
    """In a program of its own: torch._prims is imported late."""
    import subprocess
    import sys

    program = """
import sys
import tessera, torch
def body():
    mesh = tessera.init_device_mesh("cpu", (2,), ["tp"])
    x = tessera.distribute_tensor(torch.arange(6.0), mesh, "S(0)")
    (x + x).sum()  # operators are known from here on
    return mesh, x
def late():
    mesh, x = body()
    import torch._prims
    with tessera.CommLog() as log:
        y = torch.ops.prims.exp(x)
    return log.count, str(tessera.placements(y)), torch.equal(tessera.full_tensor(y), torch.arange(6.0).exp())
print(tessera.run_ranks(2, late, deadline=60))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(0, ") == 2 and done.stdout.count("True") == 2, done.stdout
