"""Plans of parallel modules against the same modules on one rank: values, gradients and
training steps, on threads and in processes."""
import copy
import os
import subprocess
import sys

import models
import pytest
import tessera
import torch
from processes import PROGRAMS
from tessera import Partial, Replicate, Shard
from torch import nn
from torch.nn import functional as F

DTYPE = torch.float64


def on_mesh(body, shape=(4,), names=("tp",)):
    size = torch.Size(shape).numel()
    return tessera.run_ranks(
        size, lambda: body(tessera.init_device_mesh("cpu", shape, list(names))),
        deadline=60)


def whole(tensor):
    return tessera.full_tensor(tensor) if tessera.is_dtensor(tensor) else tensor


def check_gradients(module, plain):
    wanted = dict(plain.named_parameters())
    for name, parameter in module.named_parameters():
        assert torch.allclose(whole(parameter.grad), wanted[name].grad,
                              rtol=1e-10, atol=1e-12), name


def mlp(hidden=13):
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, hidden, dtype=DTYPE), nn.Tanh(),
                         nn.Linear(hidden, 5, dtype=DTYPE))


# Made once: ranks that are threads share torch's generator.
MLP, EVEN_MLP = mlp(), mlp(8)
X = torch.arange(48, dtype=DTYPE).reshape(8, 6).sin()
PAIR = {"0": lambda **k: tessera.ColwiseParallel(**k),
        "2": lambda **k: tessera.RowwiseParallel(**k)}


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_a_pair_of_layers_of_any_size(ranks, local):
    plain = copy.deepcopy(MLP)
    x = X.clone().requires_grad_()
    y = plain(x)
    (y * y.detach().cos()).sum().backward()

    def body(mesh):
        net = copy.deepcopy(MLP)
        parameters = list(net.parameters())
        assert net is tessera.parallelize_module(net, mesh, {
            path: make(use_local_output=local) for path, make in PAIR.items()})
        assert all(a is b for a, b in zip(parameters, net.parameters()))
        assert [tessera.placements(p) for p in parameters] == [
            [Shard(0)], [Shard(0)], [Shard(1)], [Replicate()]]
        mine = X.clone().requires_grad_()
        factor = y.detach().cos()
        if not local:
            factor = tessera.distribute_tensor(factor, mesh, "R")
        with tessera.CommLog() as log:
            result = net(mine)
            assert tessera.is_dtensor(result) != local
            (result * factor).sum().backward()
        assert torch.allclose(whole(result), y, rtol=1e-12)
        assert torch.allclose(mine.grad, x.grad, rtol=1e-10)
        check_gradients(net, plain)
        kinds = [entry.kind for entry in log.entries]
        assert kinds == ([] if ranks == 1 else ["all_reduce"] * 2), log

    on_mesh(body, (ranks,))


class LlamaBlock(nn.Module):
    """Attention that counts local heads, as PyTorch's tensor parallelism wants it."""

    def __init__(self, width=8, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.RMSNorm(width, dtype=DTYPE)
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(width, width, bias=False, dtype=DTYPE) for _ in range(4))
        self.attention = nn.Identity()
        self.norm2 = nn.LayerNorm(width, dtype=DTYPE)
        self.w1, self.w3 = (nn.Linear(width, 12, dtype=DTYPE) for _ in range(2))
        self.w2 = nn.Linear(12, width, dtype=DTYPE)

    def forward(self, x):
        h = self.attention(self.norm(x))
        q, k, v = (f(h).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for f in (self.wq, self.wk, self.wv))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(y.transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


torch.manual_seed(7)
BLOCK = LlamaBlock()
SEQUENCE = torch.arange(2 * 8 * 8, dtype=DTYPE).reshape(2, 8, 8).cos()


def sequence_plan():
    """Sequence parallelism between the blocks, local heads in them."""
    to_whole = tessera.PrepareModuleInput(
        input_layouts=Shard(1), desired_input_layouts=Replicate())
    columns = tessera.ColwiseParallel
    rows = lambda: tessera.RowwiseParallel(  # noqa: E731
        output_layouts=Shard(1), use_local_output=False)
    return {"norm*": tessera.SequenceParallel(), "attention": to_whole,
            "w[qkv]": columns(), "wo": rows(),
            "w1": columns(input_layouts=Shard(1)), "w3": columns(input_layouts=Shard(1)),
            "w2": rows()}


def train_block(module, x, to_loss, steps=4):
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = to_loss(module(x))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_sequence_parallel_training_with_local_heads_equals_plain():
    wanted = train_block(copy.deepcopy(BLOCK), SEQUENCE, lambda y: (y * y).mean())

    def body(mesh):
        block = copy.deepcopy(BLOCK)
        block.heads //= mesh.size()
        tessera.parallelize_module(block, mesh, sequence_plan())
        x = tessera.distribute_tensor(SEQUENCE, mesh, [Shard(1)])
        return train_block(block, x, lambda y: (y * y).mean())

    for losses in on_mesh(body, (2,)) + on_mesh(body, (4,)):
        assert losses == pytest.approx(wanted, rel=1e-11)


def train_plan():
    local = {"use_local_output": False}
    return {"tokens": tessera.ColwiseParallel(output_layouts=Replicate(), **local),
            "blocks.*.attention.[qkv]": tessera.ColwiseParallel(**local),
            "blocks.*.attention.out": tessera.RowwiseParallel(**local),
            "blocks.*.up": tessera.ColwiseParallel(**local),
            "blocks.*.down": tessera.RowwiseParallel(**local),
            "head": tessera.ColwiseParallel(**local)}


@pytest.mark.parametrize("shape, names", [((4,), ["tp"]), ((2, 2), ["dp", "tp"])])
def test_a_transformer_with_global_heads_trains_as_on_one_rank(shape, names):
    wanted = models.train_plain("transformer")

    def body(mesh):
        module, x, y = models.make("transformer")
        tessera.parallelize_module(module, mesh, train_plan())
        tessera.distribute_module(module, mesh)  # the rest is whole
        batch = [Shard(0)] * (mesh.ndim - 1) + [Replicate()]
        return models.train("transformer", module,
                            tessera.distribute_tensor(x, mesh, batch),
                            tessera.distribute_tensor(y, mesh, batch))

    for losses in on_mesh(body, shape, names):
        assert losses == pytest.approx(wanted, rel=1e-10)


def test_data_parallel_reduces_once_per_step():
    plain = copy.deepcopy(EVEN_MLP)
    (plain(X).square().mean() + plain(X.cos()).square().mean()).backward()

    def body(mesh):
        net = tessera.parallelize_module(copy.deepcopy(EVEN_MLP), mesh, {
            path: make(use_local_output=False) for path, make in PAIR.items()})
        parallel = tessera.DataParallel(net, mesh)
        batch = [tessera.distribute_tensor(x, mesh, "S(0) R") for x in (X, X.cos())]
        with tessera.CommLog() as log:
            with parallel.accumulate():
                net(batch[0]).square().mean().backward()
            net(batch[1]).square().mean().backward()
            parallel.reduce_gradients()
        check_gradients(net, plain)
        assert [e.mesh_dims for e in log.entries if e.cause == "DataParallel"] == ["dp"]
        assert parallel.bucket_count() == 1
        small = tessera.DataParallel
        with pytest.raises(ValueError, match="has a hook"):
            small(net, mesh)
        del parallel
        assert small(net, mesh, bucket_bytes=1).bucket_count() == 4

    on_mesh(body, (2, 2), ("dp", "tp"))


def test_loss_parallel_never_gathers_logits():
    logits = torch.arange(4 * 11, dtype=DTYPE).reshape(4, 11).sin()
    targets = torch.tensor([3, 0, 10, 7])
    plain = logits.clone().requires_grad_()
    wanted = F.cross_entropy(plain, targets)
    wanted.backward()

    def body(mesh):
        mine = tessera.distribute_tensor(logits, mesh, [Shard(1)]).requires_grad_()
        with tessera.CommLog() as log, tessera.loss_parallel():
            loss = F.cross_entropy(mine, targets)
            loss.backward()
        assert torch.allclose(whole(loss), wanted)
        assert torch.allclose(whole(mine.grad), plain.grad)
        assert log.bytes <= 4 * (2 * 4 * 8 + 8) and log.count == 3, log
        with tessera.LossParallel():
            with pytest.raises(ValueError, match="the logits must be cut"):
                F.cross_entropy(tessera.redistribute(mine, "R"),
                                tessera.distribute_tensor(targets, mesh, "R"))

    on_mesh(body)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(X[:6, :4].t().contiguous().t().clone())
        self.scale = nn.Parameter(torch.linspace(1, 2, 4, dtype=DTYPE))
        self.down = nn.Linear(4, 3, dtype=DTYPE)

    def forward(self, x):
        return self.down((x @ self.up).tanh() * self.scale)


SCALED = Scaled()


def test_parameters_of_ones_own():
    plain = copy.deepcopy(SCALED)
    plain(X).square().sum().backward()

    def body(mesh):
        net = tessera.parallelize_module(copy.deepcopy(SCALED), mesh, {
            "up": tessera.ParameterParallel(
                Shard(1), input_layouts=Replicate(), output_layouts=Shard(-1)),
            "scale": tessera.ParameterParallel(Shard(0)),
            "down": tessera.RowwiseParallel()})
        y = net(X)
        assert torch.allclose(y, plain(X))
        y.square().sum().backward()
        check_gradients(net, plain)

    on_mesh(body, (2,))


def test_module_inputs_and_outputs_by_position_and_by_name():
    class Two(nn.Module):
        def forward(self, a, k, *, b):
            return a * k, b.sum(), k

    def body(mesh):
        r = mesh.local_rank()
        style = tessera.PrepareModuleInputOutput(
            input_layouts=(Shard(0), None), desired_input_layouts=(Replicate(), None),
            input_kwarg_layouts={"b": Shard(1)},
            desired_input_kwarg_layouts={"b": Shard(0)},
            output_layouts=(Replicate(), Partial(), None),
            desired_output_layouts=(Shard(1), Replicate(), None))
        net = tessera.parallelize_module(Two(), mesh, style)
        a, b, k = net(X[2 * r:2 * r + 2], 3, b=X[:, 3 * (r % 2):3 * (r % 2) + 3])
        assert not tessera.is_dtensor(a) and not tessera.is_dtensor(b)
        assert torch.equal(a, 3 * X.tensor_split((2, 4, 6), 1)[r]) and k == 3
        assert torch.allclose(b, 2 * X.sum())
        with pytest.raises(ValueError, match=r"PrepareModuleInputOutput of \"\" on tp of "
                           r"mesh\(tp=4\): there must be an input layout per argument"):
            net(X, b=X)

    on_mesh(body)


def test_styles_of_ones_own():
    class AsInPyTorch(tessera.ParallelStyle):
        def _apply(self, module, device_mesh):
            def cut(name, part, mesh):
                tessera.make_dtensor_(part.weight, mesh, [Shard(0)],
                                      src_data_rank=self.src_data_rank)
            return tessera.distribute_module(
                module, device_mesh, cut,
                lambda m, args, mesh: tessera.from_local(args[0], mesh, [Replicate()]),
                lambda m, result, mesh: tessera.full_tensor(result))

    class Packed(tessera.ParallelStyle):
        def apply(self, target):
            assert target.path == "0" and target.ranks == 2
            target.shard("weight", tessera.StridedShard(0, 2))
            target.replicate()
            target.before(lambda args, kwargs: (
                (target.taken(args[0], Replicate()),), kwargs))
            target.after(lambda y: tessera.to_local(target.moved(y, Replicate())))

    wanted = EVEN_MLP(X)

    def body(mesh):
        for style in (AsInPyTorch(), Packed()):
            net = tessera.parallelize_module(
                copy.deepcopy(EVEN_MLP), mesh, {"0": style})
            assert torch.allclose(net(X), wanted)
            assert not tessera.is_dtensor(net[2].weight)
        with pytest.raises(NotImplementedError, match="neither apply"):
            tessera.parallelize_module(MLP, mesh, {"0": type(
                "Empty", (tessera.ParallelStyle,), {})()})

    on_mesh(body, (2,))


def test_a_wrong_plan_touches_nothing():
    columns, rows = tessera.ColwiseParallel, tessera.RowwiseParallel
    cases = [
        ({"0": columns(), "3": rows()}, ValueError, r'no module has the name "3"; there are: 0, 1, 2'),
        ({"0.weights": tessera.ParameterParallel()}, ValueError,
         r'no parameter has the name "0.weights"; there are: 0.weight, 0.bias'),
        ({"0": columns(), "1": columns()}, NotImplementedError,
         r'ColwiseParallel of "1" on tp of mesh\(tp=2\): the style is for Linear'),
        ({"*": rows()}, NotImplementedError, r'RowwiseParallel of "1"'),
        ({"0": columns(), "0.weight": tessera.ParameterParallel()}, ValueError,
         r'another style of the plan has placed 0.weight, as S\(0\)'),
        ({"0": nn.Linear}, TypeError, "must be a style"),
        (None, ValueError, "there is no plan"),
    ]

    def body(mesh):
        net = copy.deepcopy(MLP)
        for plan, error, text in cases:
            with tessera.CommLog() as log, pytest.raises(error, match=text):
                tessera.parallelize_module(net, mesh, plan)
            assert log.count == 0
            assert not any(tessera.is_dtensor(p) for p in net.parameters())
            assert not net[0]._forward_hooks
        with pytest.raises(ValueError, match='has no dim "ep"'):
            tessera.parallelize_module(net, mesh, columns(), mesh_dim="ep")
        tessera.parallelize_module(net, mesh, {"0": columns()})
        with pytest.raises(ValueError, match=r'is sharded already; got 0.weight, f64'):
            tessera.parallelize_module(net, mesh, {"0": columns()})
        other = tessera.DeviceMesh("cpu", [1, 0])
        with pytest.raises(ValueError, match="redistribute.. it to the mesh of the plan"):
            net(tessera.distribute_tensor(X, other, "R"))
        with pytest.raises(TypeError, match="a tensor was expected; got int"):
            net(3)
        with pytest.raises(ValueError, match="a desired layout per input layout"):
            tessera.PrepareModuleInput(input_layouts=Shard(0))

    on_mesh(body, (2,))
    on_mesh(lambda mesh: pytest.raises(
        ValueError, tessera.parallelize_module(mlp(), mesh, {"0": columns()}), X).match(
            "what it is in other dims of the mesh is not known"), (2, 2), ("dp", "tp"))


def test_local_map_of_several_arguments_and_results():
    def body(mesh):
        w = tessera.distribute_tensor(X[:6], mesh, [Replicate()]).requires_grad_()
        x = tessera.distribute_tensor(X, mesh, [Shard(0)])

        @tessera.local_map(
            out_placements=([Shard(0)], None, "P(sum)"),
            in_placements=([Shard(0)], "R", None),
            in_grad_placements=(None, "P(sum)", None))
        def apply(part, weight, factor, *, power):
            assert not tessera.is_dtensor(part) and part.shape[0] == 2
            y = (part @ weight) ** power * factor
            return {"y": y, "n": part.shape[0], "sum": y.sum()}

        got = apply(x, w, 2, power=2)
        want_w = X[:6].clone().requires_grad_()
        want = (X @ want_w) ** 2 * 2
        assert torch.allclose(whole(got["y"]), want) and got["n"] == 2
        assert torch.allclose(whole(got["sum"]), want.sum())
        got["y"].sum().backward()
        want.sum().backward()
        assert torch.allclose(whole(w.grad), want_w.grad)
        assert torch.equal(apply(X[:2], X[:6], 1, power=1)["y"], X[:2] @ X[:6])

        moved = tessera.local_map(lambda t: t + 1, [Shard(1)], ([Shard(1)],), mesh=mesh)
        with pytest.raises(ValueError, match="must be in S.1.; got S.0."):
            moved(x)
        moved = tessera.local_map(lambda t: t + 1, [Shard(1)], ([Shard(1)],), mesh=mesh,
                                  redistribute_inputs=True)
        with pytest.raises(ValueError, match="unevenly.*set out_shapes"):
            moved(x)
        moved = tessera.local_map(lambda t: t + 1, [Shard(1)], ([Shard(1)],), mesh=mesh,
                                  redistribute_inputs=True, out_shapes=[[8, 6]])
        assert torch.equal(whole(moved(x)), X + 1)
        with pytest.raises(ValueError, match="per argument; got 1 for 2"):
            moved(x, 3)
        with pytest.raises(ValueError, match="result 0 is Tensor and its out_placements"):
            tessera.local_map(lambda t: t, (None,))(x)
        with pytest.raises(ValueError, match="per result; got 1 for 2"):
            tessera.local_map(lambda t: (t, t), [Shard(0)])(x)

    on_mesh(body)


@pytest.mark.parametrize("launcher", ["torchrun", "gloo"])
def test_the_same_plans_in_processes(launcher):
    """A PyTorch program's launcher, and ours with its processes."""
    tool = os.path.join(os.environ.get("TESSERA_BIN", ""), "tessera")
    program = str(PROGRAMS / "parallel_ranks.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               "--nproc-per-node", "2", program]
    if launcher == "gloo":
        command = [tool, "run", "-n", "2", "--engine", "gloo", "--", sys.executable,
                   program]
    result = subprocess.run(command, text=True, capture_output=True, timeout=150,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("as on one rank") == 2, result.stdout + result.stderr
