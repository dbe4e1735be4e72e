"""fully_shard on modules of Python: training equals that on one rank, alone, with tensor
parallelism, with micro-batches, and of deferred modules."""
import copy

import pytest
import tessera
import torch
from tessera import Shard
from torch import nn

DTYPE = torch.float64
torch.manual_seed(4)


class Block(nn.Module):
    def __init__(self, width=6, hidden=10):
        super().__init__()
        self.norm = nn.LayerNorm(width, dtype=DTYPE)
        self.up = nn.Linear(width, hidden, dtype=DTYPE)
        self.down = nn.Linear(hidden, width, dtype=DTYPE)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(6, 3, dtype=DTYPE)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


NET = Net()
X = torch.arange(48, dtype=DTYPE).reshape(8, 6).sin()
Y = torch.arange(24, dtype=DTYPE).reshape(8, 3).cos()


def train(net, x, y, steps=4):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def on_mesh(body, shape, names):
    return tessera.run_ranks(torch.Size(shape).numel(), lambda: body(
        tessera.init_device_mesh("cpu", shape, list(names))), deadline=60)


@pytest.mark.parametrize("keep", ["shards", "unreduced", "unreduced_and_weights"])
@pytest.mark.parametrize("shape, copies", [((2,), ""), ((2, 2), "rep")])
def test_groups_that_only_earlier_passes_reached_are_reduced_too(shape, copies, keep):
    def passes(net, x, handle=None):
        def some(blocks):
            h = x
            for block in blocks:
                h = block(h)
            net.head(h).square().mean().backward()
        if handle is None:
            some(net.blocks)
        else:
            with handle.accumulate(keep):
                some(net.blocks)
        some([net.blocks[1]])

    plain = copy.deepcopy(NET)
    passes(plain, X)

    def body(mesh):
        net = copy.deepcopy(NET)
        handle = tessera.fully_shard(net, mesh, groups=["blocks.*"], mesh_dim="dp",
                                     replicate_dim=copies)
        passes(net, tessera.distribute_tensor(X, mesh, " ".join(["S(0)"] * len(shape))), handle)
        for mine, wanted in zip(net.parameters(), plain.parameters()):
            torch.testing.assert_close(
                tessera.full_tensor(mine.grad), wanted.grad, rtol=1e-12, atol=1e-12)
        assert not any(group.is_accumulating for group in handle.report().groups)
        return True

    assert all(on_mesh(body, shape, ("rep", "dp")[-len(shape):]))


@pytest.mark.parametrize("there", [0, 2])
def test_one_rank_gets_the_whole_model(there):
    wanted = {name: tensor.clone() for name, tensor in NET.state_dict().items()}

    def body(mesh):
        net = copy.deepcopy(NET)
        tessera.fully_shard(net, mesh, groups=["blocks.*"])
        state = {"model": tessera.checkpoint.state_dict(net), "step": 7, "rates": [0.1, (2,)]}
        whole = tessera.checkpoint.full_state_dict(state, rank=there)
        if tessera.rank() != there:
            assert whole == {}
            return True
        assert whole["step"] == 7 and whole["rates"] == [0.1, (2,)]
        assert list(whole["model"]) == list(wanted)
        for name, tensor in whole["model"].items():
            assert not tessera.is_dtensor(tensor)
            assert torch.equal(tensor, wanted[name]), name
        return True

    assert on_mesh(body, (3,), ("dp",)) == [True] * 3


def test_the_whole_model_of_no_such_rank():
    def body(mesh):
        with pytest.raises(IndexError, match="the rank must be 0 to 1; got 5"):
            tessera.checkpoint.full_state_dict({"w": torch.ones(2)}, rank=5)
        with pytest.raises(TypeError, match="rank is of"):
            tessera.checkpoint.full_state_dict({"w": torch.ones(2)}, rank="a")
        return True

    assert on_mesh(body, (2,), ("dp",)) == [True] * 2


@pytest.mark.parametrize("groups", [[], ["blocks.*"], ["blocks.*", "head"]])
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_losses_are_those_of_one_rank(ranks, groups):
    wanted = train(copy.deepcopy(NET), X, Y)

    def body(mesh):
        net = copy.deepcopy(NET)
        handle = tessera.fully_shard(net, mesh, groups=groups)
        assert all(tessera.is_dtensor(p) for p in net.parameters())
        assert net.head.weight.shape == (3, 6)
        losses = train(net, tessera.distribute_tensor(X, mesh, "S(0)"),
                       tessera.distribute_tensor(Y, mesh, "S(0)"))
        report = handle.report()
        named = [name for group in report.groups for name in group.members]
        assert sorted(named) == sorted(n for n, _ in net.named_parameters())
        assert {g.path for g in report.groups} >= {
            p for p in ("blocks.0", "blocks.1") if groups}
        assert ranks == 1 or report.gathers >= len(report.groups)
        assert "group" in repr(report) or report.groups
        return losses

    for losses in on_mesh(body, (ranks,), ["dp"]):
        assert losses == pytest.approx(wanted, rel=1e-10)


def test_with_tensor_parallelism_on_one_mesh():
    wanted = train(copy.deepcopy(NET), X, Y)

    def body(mesh):
        net = copy.deepcopy(NET)
        local = {"use_local_output": False}
        tessera.parallelize_module(net, mesh, {
            "blocks.*.up": tessera.ColwiseParallel(**local),
            "blocks.*.down": tessera.RowwiseParallel(**local)})
        tessera.distribute_module(net, mesh)
        tessera.fully_shard(net, mesh, groups=["blocks.*"])
        return train(net, tessera.distribute_tensor(X, mesh, "S(0) R"),
                     tessera.distribute_tensor(Y, mesh, "S(0) R"))

    for losses in on_mesh(body, (2, 2), ["dp", "tp"]):
        assert losses == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("keep", ["shards", "unreduced", "unreduced_and_weights"])
def test_micro_batches_add_up(keep):
    plain = copy.deepcopy(NET)
    (plain(X).sum() + plain(X.cos()).sum()).backward()

    def body(mesh):
        net = copy.deepcopy(NET)
        handle = tessera.fully_shard(net, mesh, groups=["blocks.*"])
        first, last = (tessera.distribute_tensor(t, mesh, "S(0)") for t in (X, X.cos()))
        with handle.accumulate(keep):
            net(first).sum().backward()
        net(last).sum().backward()
        for (name, p), q in zip(net.named_parameters(), plain.parameters()):
            assert tessera.placements(p.grad) == tessera.placements(p), name
            assert torch.allclose(tessera.full_tensor(p.grad), q.grad, rtol=1e-10), name
        handle.unshard()
        assert any(g.is_gathered for g in handle.report().groups)
        handle.reshard()
        assert not any(g.is_gathered for g in handle.report().groups)
        with pytest.raises(ValueError, match="keep must be"):
            handle.accumulate("all")

    on_mesh(body, (2,), ["dp"])


def test_a_deferred_module_and_a_placement_of_ones_own():
    def body(mesh):
        with tessera.ReplicatedRandom():
            tessera.manual_seed(5)
            plain = Net()
        tessera.manual_seed(5)
        with tessera.DeferredInit():
            net = Net()
        tessera.fully_shard(
            net, mesh, groups=["blocks.*"], ignored_params=["head.bias"],
            placement=lambda name, p: Shard(p.dim() - 1))
        assert tessera.placements(net.head.weight) == [Shard(1)]
        assert not tessera.is_dtensor(net.head.bias)
        for (name, p), q in zip(net.named_parameters(), plain.parameters()):
            if tessera.is_dtensor(p):
                assert torch.equal(tessera.full_tensor(p), q), name

    on_mesh(body, (2,), ["dp"])


def test_dtypes_of_computation():
    def body(mesh):
        net = copy.deepcopy(NET).float()
        tessera.fully_shard(net, mesh, param_dtype=torch.bfloat16,
                            reduce_dtype=torch.float32)
        y = net(tessera.distribute_tensor(X.bfloat16(), mesh, "S(0)"))
        assert y.dtype == torch.bfloat16
        y.float().sum().backward()
        assert net.head.weight.grad.dtype == net.head.weight.dtype == torch.float32
        want = copy.deepcopy(NET).float()
        want(X.float()).sum().backward()
        assert torch.allclose(tessera.full_tensor(net.head.weight.grad),
                              want.head.weight.grad, atol=0.2)

    on_mesh(body, (2,), ["dp"])


def test_a_wrong_group_is_named():
    def body(mesh):
        with pytest.raises(ValueError, match="layers"):
            tessera.fully_shard(copy.deepcopy(NET), mesh, groups=["layers.*"])
        with pytest.raises(ValueError, match="ep"):
            tessera.fully_shard(copy.deepcopy(NET), mesh, mesh_dim="ep")

    on_mesh(body, (2,), ["dp"])
