"""The functions of the package, on ranks that are threads."""
import ast
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import pytest
import tessera
import torch
from tessera import Partial, RaggedShard, Replicate, Shard, StridedShard

PACKAGE = pathlib.Path(tessera.__file__).parent


def on_mesh(body, shape=(4,), names=("tp",)):
    """Runs body(mesh) on the ranks of a mesh; returns their results."""
    size = torch.Size(shape).numel()
    return tessera.run_ranks(
        size, lambda: body(tessera.init_device_mesh("cpu", shape, list(names))),
        deadline=30)


def test_placements_print_parse_compare_and_pickle():
    all_kinds = [Shard(0), Shard(-1), Replicate(), Partial(), Partial("max"),
                 StridedShard(1, 2), RaggedShard(0, [3, 0, 5]), Shard(0).with_order(1)]
    for placement in all_kinds:
        assert tessera.parse_placements(str(placement)) == [placement]
        assert pickle.loads(pickle.dumps(placement)) == placement
        assert hash(pickle.loads(pickle.dumps(placement))) == hash(placement)
    assert len(set(all_kinds)) == len(all_kinds)
    assert Shard(0) != "S(0)"
    assert Partial("avg").reduce_op == "avg" and Partial("avg").is_partial()
    assert Shard(1).is_shard() and Shard(1).is_shard(1) and not Shard(1).is_shard(0)
    assert StridedShard(1, 2).split_factor == 2 and StridedShard(1, 2).dim == 1
    assert RaggedShard(0, [3, 0, 5]).sizes == [3, 0, 5]
    assert Shard(0).with_dim(2) == Shard(2)
    kinds = ["shard", "replicate", "partial", "strided_shard", "ragged_shard"]
    assert [p.kind for p in (Shard(0), Replicate(), Partial(), StridedShard(0, 2),
                             RaggedShard(0, [1]))] == kinds


def test_geometry_without_ranks():
    assert [tessera.local_shape([10, 4], "mesh(4)", "S(0)", [r]) for r in range(4)] \
        == [[3, 4], [3, 4], [3, 4], [1, 4]]
    box = tessera.local_box([8, 8], "dp=2,tp=4", [Shard(0), Shard(1)], [1, 2])
    assert (box.offsets, box.sizes, box.numel()) == ([4, 4], [4, 2], 8)
    assert box == tessera.Box([4, 4], [4, 2])


def test_pictures_of_shapes_and_of_tensors_agree():
    def body(mesh):
        x = tessera.ones([5, 6], mesh, "S(0) R")
        return [tessera.visualize_sharding(x, **options) for options in
                ({}, {"ascii": True}, {"table": True, "width": 40})]
    shape = ([5, 6], "mesh(dp=2, tp=2)", "S(0) R")
    in_ascii = ("        0:6\n      +-----+\n  0:3 | 0,1 |\n      +-----+\n"
                "  3:5 | 2,3 |\n      +-----+\n\nranks in one cell hold copies")
    expected = [tessera.visualize_sharding(*shape), in_ascii,
                tessera.visualize_sharding(*shape, table=True, width=40)]
    assert on_mesh(body, (2, 2), ("dp", "tp")) == [expected] * 4
    assert "\x1b[" in tessera.visualize_sharding(*shape, color=True)
    assert tessera.replica_groups(*shape) == [[0, 1], [2, 3]]
    assert tessera.visualize_shard(*shape, 3).endswith("held by 2,3")
    with pytest.raises(IndexError, match="the rank must be in the mesh"):
        tessera.visualize_shard(*shape, 4)
    with pytest.raises(TypeError, match="not sharded"):
        tessera.visualize_sharding(torch.ones(2))


def test_meshes():
    def body(mesh):
        tp = mesh["tp"]
        flat = mesh.flatten(["dp", "tp"], "all")
        x = torch.tensor([float(tessera.rank())])
        mesh.communicator("tp").all_reduce(x)
        return dict(
            shape=mesh.shape, names=mesh.dim_names, ndim=mesh.ndim, size=mesh.size(),
            tp_size=(mesh.size(1), mesh.size("tp")), coordinate=mesh.coordinate,
            local=(mesh.local_rank("dp"), mesh.local_rank(1), tp.local_rank()),
            tp=tp.ranks.tolist(), flat=flat.shape, both=mesh["dp", "tp"] == mesh,
            unflat=flat.unflatten("all", [2, 2], ["dp", "tp"]) == mesh,
            rank=mesh.rank(), type=mesh.device_type, text=str(mesh), sum=x.item(),
            joined=tessera.DeviceMesh.concatenate([mesh["dp"], mesh["tp"]]).shape,
            equal=hash(tessera.init_device_mesh(
                torch.device("cpu"), (2, 2), ["dp", "tp"])) == hash(mesh),
            world=mesh.world().size(), whole=mesh.whole().ranks())

    got = on_mesh(body, (2, 2), ("dp", "tp"))[3]
    assert got == dict(
        shape=(2, 2), names=("dp", "tp"), ndim=2, size=4, tp_size=(2, 2),
        coordinate=[1, 1], local=(1, 1, 1), tp=[2, 3], flat=(4,), both=True,
        unflat=True, rank=3, type="cpu", text="mesh(dp=2, tp=2)", sum=5.0,
        joined=(2, 2), equal=True, world=4, whole=[0, 1, 2, 3])


def test_any_arrangement_of_ranks_and_ranks_outside():
    def body():
        mesh = tessera.DeviceMesh("cpu", [[3, 1]], ["a", "b"])
        x = tessera.ones([4], mesh, "R S(0)")
        return mesh.coordinate, list(tessera.to_local(x).shape)

    assert tessera.run_ranks(4, body) == [
        (None, [0]), ([0, 1], [2]), (None, [0]), ([0, 0], [2])]


def test_tensors_come_go_and_move():
    value = torch.arange(24.0).reshape(6, 4)

    def body(mesh):
        t = tessera.distribute_tensor(value, mesh, [Shard(0), Shard(1)])
        assert tessera.is_dtensor(t) and not tessera.is_dtensor(value)
        assert tessera.placements(t) == [Shard(0), Shard(1)]
        assert tessera.device_mesh(t) == mesh
        spec = tessera.spec(t)
        assert (spec.shape, spec.local_shape, spec.strides) == ([6, 4], [3, 2], [4, 1])
        assert spec.dtype == torch.float32 and not spec.is_replicated()
        assert spec.mesh == mesh and spec.has_shard()
        local = tessera.to_local(t)
        i, j = mesh.coordinate
        assert torch.equal(local, value[3 * i:3 * i + 3, 2 * j:2 * j + 2])
        assert tessera.chunk_list(t) == [tessera.Box([3 * i, 2 * j], [3, 2])]
        for target in ("R R", "S(1) S(0)", "P(sum) S(0)", "SS(0,2) R", "R RS(1,[1,3])"):
            moved = tessera.redistribute(t, target)
            assert tessera.placements(moved) == tessera.parse_placements(target)
            assert torch.equal(tessera.full_tensor(moved), value)
        other = tessera.init_device_mesh("cpu", (4,))
        elsewhere = tessera.redistribute(t, other, [Shard(1)])
        assert tessera.device_mesh(elsewhere) == other
        assert torch.equal(tessera.full_tensor(elsewhere), value)
        half = tessera.redistribute(t, "R R", forward_dtype=torch.float16)
        assert half.dtype == torch.float16
        again = tessera.from_local(local, mesh, "S(0) S(1)", run_check=True)
        assert torch.equal(tessera.full_tensor(again), value)

    on_mesh(body, (2, 2), ("dp", "tp"))


def test_uneven_shards_come_from_local_with_a_shape():
    def body(mesh):
        mine = torch.full((tessera.rank(), 2), float(tessera.rank()))
        t = tessera.from_local(mine, mesh, [RaggedShard(0, [0, 1, 2, 3])],
                               shape=[6, 2], stride=[2, 1])
        return tessera.full_tensor(t)[:, 0].tolist()

    assert on_mesh(body)[0] == [1.0, 2.0, 2.0, 3.0, 3.0, 3.0]


def test_gradients_of_the_ways_in_and_out():
    def body(mesh):
        plain = torch.ones(2, requires_grad=True)
        t = tessera.from_local(plain, mesh, "S(0)")
        (t * torch.arange(1.0, 9.0).mul(1)[0:1].item()).sum().backward()
        assert torch.equal(plain.grad, torch.ones(2))
        w = tessera.ones([8], mesh, "S(0)", requires_grad=True)
        tessera.full_tensor(w).pow(2).sum().backward()
        assert torch.equal(tessera.full_tensor(w.grad), torch.full((8,), 2.0))
        r = tessera.ones([4], mesh, "R", requires_grad=True)
        part = tessera.to_local(r, grad_placements=[Partial()])
        (part * tessera.rank()).sum().backward()
        assert tessera.full_tensor(r.grad).tolist() == [6.0] * 4

    on_mesh(body)


def test_current_mesh_is_used_where_none_is_named():
    def body(mesh):
        with pytest.raises(Exception, match="mesh"):
            tessera.distribute_tensor(torch.ones(4))
        with tessera.MeshGuard(mesh):
            assert tessera.current_mesh() == mesh
            t = tessera.distribute_tensor(torch.ones(4))
            cut = tessera.distribute_tensor(torch.ones(4), placements="S(0)")
        assert tessera.placements(t) == [Replicate()]
        assert tessera.placements(cut) == [Shard(0)]

    on_mesh(body)


FACTORIES = {
    "zeros": ([4, 2],), "ones": ([4, 2],), "empty": ([4, 2],), "full": ([4, 2], 3.5),
    "arange": (0, 9, 2), "linspace": (0, 1, 5), "logspace": (0, 3, 4, 10.0),
    "rand": ([5, 2],), "randn": ([5, 2],), "randint": (0, 9, [7]), "randperm": (9,),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name):
    def body(mesh, placements):
        make = getattr(tessera, name)
        tessera.manual_seed(11)
        t = make(*FACTORIES[name], mesh, placements)
        assert tessera.placements(t) == tessera.parse_placements(placements)
        other = make(*FACTORIES[name], mesh, placements, dtype=torch.float64,
                     requires_grad=True)
        assert other.dtype == torch.float64 and other.requires_grad and other.is_leaf
        return tessera.full_tensor(t)

    cut = on_mesh(lambda mesh: body(mesh, "S(0)"))
    alone = on_mesh(lambda mesh: body(mesh, "R"), (1,))[0]
    if name != "empty":
        assert all(torch.equal(value, alone) for value in cut)
    draws = name.startswith("rand") or name == "empty"
    if not draws:
        assert torch.equal(alone, getattr(torch, name)(*FACTORIES[name]))


def test_random_numbers_do_not_depend_on_the_mesh():
    def body(mesh, placements):
        tessera.manual_seed(5)
        x = tessera.ones([6, 4], mesh, placements)
        y = torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)
        state = pickle.loads(pickle.dumps(tessera.random_state()))
        assert (state.seed, state.operations) == (5, 2)
        a = tessera.randn([3], mesh, "R" + " R" * (mesh.ndim - 1))
        tessera.set_random_state(state)
        assert tessera.random_state() == state
        b = tessera.randn([3], mesh, "R" + " R" * (mesh.ndim - 1))
        assert torch.equal(tessera.full_tensor(a), tessera.full_tensor(b))
        with tessera.RandomStream("mine"):
            c = tessera.rand([2], mesh, "R" + " R" * (mesh.ndim - 1))
        with tessera.ReplicatedRandom():
            d = torch.rand(3)
        return [tessera.full_tensor(y), tessera.full_tensor(c), d]

    want = on_mesh(lambda m: body(m, "R"), (1,))[0]
    for got in (*on_mesh(lambda m: body(m, "S(0)"), (4,)),
                *on_mesh(lambda m: body(m, "S(1) S(0)"), (2, 2), ("a", "b"))):
        assert all(torch.equal(g, w) for g, w in zip(got, want))


class Initialised(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(9, 6, padding_idx=2)
        self.attention = torch.nn.MultiheadAttention(6, 2)
        self.cell = torch.nn.LSTM(6, 4)
        self.norm = torch.nn.BatchNorm1d(6)
        self.head = torch.nn.Linear(6, 9, bias=False)
        self.head.weight = self.tokens.weight
        self.scale = torch.nn.Parameter(torch.randn(6, 5) * 0.1)
        self.square = torch.nn.Parameter(torch.empty(6, 4, dtype=torch.bfloat16))
        torch.nn.init.sparse_(self.scale, sparsity=0.3)
        torch.nn.init.orthogonal_(self.attention.out_proj.weight)
        torch.nn.init.kaiming_normal_(self.square)
        with torch.no_grad():
            self.square[1:3] *= 2
        self.register_buffer("mask", torch.full((5, 5), float("-inf")).triu(1))
        self.register_buffer("angles", torch.outer(torch.arange(4.0), 10.0 ** -torch.arange(3)))
        self.to(torch.float64)


def test_deferred_init():
    def body(mesh, places):
        nets = []
        for guard in (tessera.DeferredInit, tessera.ReplicatedRandom):
            tessera.manual_seed(3)
            with guard():
                nets.append(Initialised())
        later, want = nets
        state = list(later.state_dict(keep_vars=True).items())
        assert all(tessera.is_deferred(t) for _, t in state)
        with pytest.raises(ValueError, match="DeferredInit.*materialize"):
            later.head(torch.ones(2, 6, dtype=torch.float64))
        with tessera.CommLog() as log:
            for _, t in state:
                if not tessera.is_dtensor(t):
                    cut = [p if not p.is_shard() or p.dim < t.dim() else tessera.Replicate()
                           for p in tessera.parse_placements(places)]
                    tessera.make_dtensor_(t, mesh, cut)
        assert log.count == 0
        assert later.head.weight is later.tokens.weight
        for name, t in state:
            assert torch.equal(tessera.full_tensor(t), want.state_dict()[name]), name
        return True

    assert all(on_mesh(lambda m: body(m, "S(0)"), (3,)))
    assert all(on_mesh(lambda m: body(m, "S(1) S(0)"), (2, 2), ("a", "b")))


def test_materialize_makes_a_plain_module():
    tessera.manual_seed(3)
    with tessera.DeferredInit():
        net = Initialised()
        assert torch.tensor(2.5).item() == 2.5  # a number that is known
        kept = torch.tensor([1.0, 2.0])
        assert kept.device.type == "cpu" and not kept.is_meta
        with pytest.raises(NotImplementedError, match="DeferredInit: .*needs values"):
            kept.sum().item()
    assert tessera.is_deferred(kept)
    tessera.materialize(kept)
    assert kept.tolist() == [1, 2]
    tessera.materialize(net)
    tessera.manual_seed(3)
    with tessera.ReplicatedRandom():
        want = Initialised()
    for name, t in net.state_dict().items():
        assert torch.equal(t, want.state_dict()[name]), name
    net.head(torch.ones(2, 6, dtype=torch.float64)).sum().backward()
    assert net.head.weight.grad.device.type == "cpu"


def test_strict_mode_and_implicit_replication():
    def body(mesh):
        a = tessera.ones([4, 4], mesh, "S(0)")
        b = tessera.ones([4, 4], mesh, "S(0)")
        with tessera.StrictMode():
            assert (a + 1).sum(1).shape == (4,)
            with pytest.raises(ValueError, match="StrictMode forbids implied"):
                a @ b
            with tessera.StrictMode(communication=False):
                a @ b
        with pytest.raises(ValueError, match="plain and sharded tensors are mixed"):
            a + torch.ones(4)
        with tessera.ImplicitReplication():
            assert (a + torch.ones(4)).sum().item() == 32
        guard = tessera.StrictMode()
        with guard, pytest.raises(ValueError, match="is entered already"):
            with guard:
                pass

    on_mesh(body)


def test_fallbacks_are_counted_and_can_be_forbidden():
    name = "tessera_python_test::unknown"
    with torch.library._scoped_library("tessera_python_test", "DEF") as library:
        library.define("unknown(Tensor x) -> Tensor")
        library.impl("unknown", lambda x: x.flip(0), "CPU")

        def body(mesh):
            x = tessera.distribute_tensor(torch.arange(8.0), mesh, "S(0)")
            y = torch.ops.tessera_python_test.unknown(x)
            assert torch.equal(tessera.full_tensor(y), torch.arange(8.0).flip(0))
            with tessera.StrictMode(communication=False, fallbacks=True):
                with pytest.raises(ValueError, match="StrictMode forbids"):
                    torch.ops.tessera_python_test.unknown(x)

        assert name not in tessera.fallback_counts()
        on_mesh(body)
        assert tessera.fallback_counts()[name] == 4


def test_a_log_says_what_moved_and_why():
    def body(mesh):
        x = tessera.ones([8], mesh, "S(0)")
        log = tessera.CommLog()
        with pytest.raises(ValueError, match="nothing was recorded"):
            log.count
        with log:
            tessera.full_tensor(x)
            assert log.count == 1
        tessera.full_tensor(x)
        entry = log.entries[0]
        assert (log.count, log.bytes, entry.bytes) == (1, 24, 24)
        assert (entry.kind, entry.cause) == ("all_gather", "full_tensor")
        assert entry.asked
        assert (entry.mesh_dims, entry.ranks) == ("tp", [0, 1, 2, 3])
        assert entry.dtype == torch.float32 and not entry.in_backward
        assert entry.line() == "all_gather tp: S(0) -> R, 24 bytes"
        assert (entry.source, entry.target) == ("S(0)", "R")
        assert log.by_cause == [("full_tensor", True, 1, 24)]
        assert "all_gather tp" in str(log) and '"bytes"' in log.to_json()
        log.clear()
        assert log.count == 0

    on_mesh(body)


def test_explain_says_what_would_move_without_moving():
    def body(mesh):
        a = tessera.ones([4, 4], mesh, "S(1)")
        b = tessera.ones([4, 4], mesh, "S(1)")
        with tessera.CommLog() as log:
            texts = [tessera.explain("mm", a, b),
                     tessera.explain("aten::sum.dim_IntList", a, [1], False),
                     tessera.explain("cat", [a, b], 0),
                     tessera.explain("redistribute", a, "S(0)"),
                     tessera.explain("redistribute", a, mesh, [Replicate()])]
        assert log.count == 0
        assert "aten::mm" in texts[0] and "bytes" in texts[3]
        with pytest.raises(TypeError, match="explain: an argument must be a tensor, a number"):
            tessera.explain("mm", a, object())
        with pytest.raises(TypeError, match="a tensor, perhaps a mesh, and"):
            tessera.explain("redistribute", a)

    on_mesh(body)


def test_every_operator_is_listed():
    forms = {o.name: o.form for o in tessera.list_operators()}
    assert forms["aten::add.Tensor"] == "pointwise"
    assert tessera.is_rule_form(forms["aten::mm"])
    assert not tessera.is_rule_form("fallback")


def test_rules_for_operators_of_ones_own():
    with torch.library._scoped_library("tessera_python_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        tessera.rules().pointwise(["tessera_python_test::twice"]).also("sum,avg: P->P")
        try:
            def body(mesh):
                x = tessera.ones([4], mesh, "S(0)")
                y = torch.ops.tessera_python_test.twice(x)
                addends = tessera.ones([4], mesh, "P(sum)")
                p = torch.ops.tessera_python_test.twice(addends)
                return (str(tessera.placements(y)), y.sum().item(),
                        str(tessera.placements(p)), p.sum().item())

            assert on_mesh(body)[0] == ("[S(0)]", 8.0, "[P(sum)]", 8.0)
            assert any("tessera_python_test::twice" in line
                       for line in tessera.rules().list())
            with pytest.raises(ValueError, match="tessera_python_test::twice"):
                tessera.rules().pointwise(["tessera_python_test::twice"])
        finally:
            tessera.rules().remove("tessera_python_test::twice")


def test_collectives_of_plain_tensors():
    def body():
        group, rank = tessera.init().communicator(), tessera.rank()
        x = torch.tensor([float(rank)])
        out = torch.empty(3)
        group.all_gather(out, x)
        work = group.all_reduce(x, "max", async_op=True)
        tessera.progress()
        work.wait()
        assert work.done() and x.item() == 2
        sums = torch.empty(1)
        group.reduce_scatter(sums, torch.arange(3.0))
        mixed = torch.empty(3)
        group.all_to_all(mixed, torch.full((3,), float(rank)))
        part = torch.empty(1)
        group.scatter(part, torch.arange(3.0) if rank == 1 else None, 1)
        all_parts = torch.empty(3) if rank == 0 else None
        group.gather(all_parts, part, 0)
        root = torch.full((2,), float(rank))
        group.broadcast(root, 2)
        if rank == 0:
            group.send(torch.tensor([9.0]), 1)
        got = torch.zeros(1)
        if rank == 1:
            group.recv(got, 0)
        half = group.split(rank % 2)
        group.barrier()
        return (out.tolist(), sums.item(), mixed.tolist(), part.item(), root.tolist(),
                half.ranks(), got.item(), group.engine(), group.size())

    results = tessera.run_ranks(3, body, deadline=30)
    assert results[1] == ([0.0, 1.0, 2.0], 3.0, [0.0, 1.0, 2.0], 1.0, [2.0, 2.0], [1],
                          9.0, "threads", 3)


def test_replicas_that_differ_are_found():
    def body(mesh):
        module = torch.nn.Linear(2, 2)
        tessera.distribute_module(module, mesh)
        tessera.check_replicas(module)
        with torch.no_grad():
            tessera.to_local(module.bias).add_(tessera.rank())
        with pytest.raises(ValueError, match="bias"):
            tessera.check_replicas(module)
        with pytest.raises(ValueError, match="wrong"):
            tessera.check_replicas({"wrong": module.bias})
        tessera.check_replicas([("far", module.bias)], tolerance=1e6)
        w = tessera.ones([2], mesh, "R", requires_grad=True)
        tessera.name_tensor(w, "scale")
        with tessera.GradientCheck(), pytest.raises(ValueError, match="scale"):
            (tessera.to_local(w) * tessera.rank()).sum().backward()

    on_mesh(body, (2,))


def test_wrong_arguments_say_what_is_right():
    def body(mesh):
        x = tessera.ones([4], mesh, "S(0)")
        with pytest.raises(TypeError, match="a list of placements or the notation"):
            tessera.redistribute(x, 3)
        with pytest.raises(TypeError, match="every item must be a tessera placement"):
            tessera.redistribute(x, ["S(0)"])
        with pytest.raises(ValueError, match="expected"):
            tessera.redistribute(x, "Q(0)")
        with pytest.raises(TypeError, match="not sharded"):
            tessera.spec(torch.ones(2))
        with pytest.raises(ValueError, match="no engine is called 'tcp'"):
            tessera.init(engine="tcp")
        with pytest.raises(ValueError, match="expected"):
            Partial("xor")
        with pytest.raises(TypeError, match="a group of torch.distributed is needed"):
            tessera.from_process_group("0")
        with pytest.raises(TypeError, match="a DeviceMesh or the notation is needed"):
            tessera.local_shape([4], 3, "S(0)", [0])
        with pytest.raises(IndexError):
            tessera.distribute_tensor(torch.ones(4), mesh, [Shard(3)])

    on_mesh(body, (2,))


def stub_names(file):
    tree = ast.parse((PACKAGE / file).read_text())
    names = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.setdefault(node.name, []).append(node)
    return names


@pytest.mark.parametrize("module, file", [
    (tessera, "__init__.pyi"), (tessera.checkpoint, "checkpoint.pyi"),
    (tessera.sharded_tensor, "sharded_tensor.pyi")])
def test_the_stubs_name_what_the_package_has(module, file):
    names = stub_names(file)
    assert {n for n in names if not n.startswith("_")} == set(module.__all__)
    for name, nodes in names.items():
        if not isinstance(nodes[0], ast.ClassDef):
            continue
        members = {m.name for m in nodes[0].body if isinstance(m, ast.FunctionDef)}
        members |= {m.target.id for m in nodes[0].body if isinstance(m, ast.AnnAssign)}
        type_of = getattr(module, name)
        actual = {m for m in vars(type_of) if not m.startswith("_")}
        actual |= {m for m in getattr(type_of, "__annotations__", ()) if m[0] != "_"}
        assert {m for m in members if not m.startswith("_")} == actual, name
        assert members <= set(dir(type_of)) | actual, name


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").exists()


def test_another_series_of_torch_is_named(tmp_path):
    package = shutil.copytree(PACKAGE, tmp_path / "tessera")
    (package / "build_info.py").write_text('VERSION = "1"\nTORCH_SERIES = "2.1"\n')
    result = subprocess.run(
        [sys.executable, "-c", "import tessera"], capture_output=True, text=True,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert "ImportError: tessera was built with torch 2.1 and this is" in result.stderr
