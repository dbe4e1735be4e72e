"""fully_shard of tessera.torch_compat: values, gradients and what is kept are those of
torch.distributed.fsdp; a program under both imports is in programs/tutorials."""
import gc
import weakref

import pytest
import tessera
import tessera.torch_compat as dt
import torch
from torch import nn
from torch.nn import functional as F

ROWS = 8


def on_mesh(body, shape=(4,), names=("dp",)):
    def main():
        return body(dt.init_device_mesh("cpu", shape, mesh_dim_names=names))
    return tessera.run_ranks(torch.Size(shape).numel(), main, deadline=60)


class Block(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.up, self.down = nn.Linear(width, 10), nn.Linear(10, width)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x):
        # Plain tensors of the program meet parameters, as they do on one device.
        return x + self.down(F.gelu(self.up(x))) * self.scale + x.new_ones(x.shape[-1])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 6)  # 5 columns and 6 rows on 4 ranks: uneven
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.last = nn.Linear(6, 5, bias=False)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return F.linear(x, self.last.weight)


def make():
    tessera.manual_seed(5)
    with tessera.ReplicatedRandom():
        return Net().double()


def rows(step):
    return torch.arange(ROWS * 5.0, dtype=torch.float64).mul(7 + step).sin().view(ROWS, 5)


def train(net, mine, steps=3, clip=torch.nn.utils.clip_grad_norm_):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        loss = (net(mine(rows(step))) - mine(rows(step + 1))).square().mean()
        loss.backward()
        clip(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def whole(parameter):
    return tessera.full_tensor(parameter.detach())


@pytest.mark.parametrize("shape, names", [
    ((4,), ("dp",)), ((3,), ("dp",)), ((2, 2), ("replicate", "shard"))])
def test_parameters_are_those_of_the_plain_run(shape, names):
    ranks = torch.Size(shape).numel()
    plain = make()
    want = train(plain, lambda x: x[:ROWS // ranks * ranks])

    def body(mesh):
        net = make()
        for block in net.blocks:
            dt.fully_shard(block, mesh=mesh)
        dt.fully_shard(net, mesh=mesh)
        assert isinstance(net.blocks[0], dt.FSDPModule) and isinstance(net, dt.FSDPModule)
        assert not isinstance(net.first, dt.FSDPModule)
        assert net.first.weight.placements == (dt.Replicate(),) * (len(shape) - 1) + (
            dt.Shard(0),)
        rank, part = tessera.rank(), ROWS // ranks
        losses = train(net, lambda x: x[rank * part:(rank + 1) * part])
        for got, wanted in zip(net.parameters(), plain.parameters()):
            torch.testing.assert_close(whole(got), wanted.detach(), rtol=1e-11, atol=1e-12)
        return losses

    mean = torch.tensor(on_mesh(body, shape, names), dtype=torch.float64).mean(0)
    assert mean.tolist() == pytest.approx(want, rel=1e-11)


def test_each_rank_keeps_its_part_and_modules_have_it_back():
    def body(mesh):
        net = dt.fully_shard(make(), mesh=mesh)
        kept = sum(p.to_local().numel() for p in net.parameters())
        assert kept < sum(p.numel() for p in net.parameters()) / 2
        seen = []
        net.last.register_forward_pre_hook(lambda *_: seen.append(1))
        net.first.register_forward_hook(
            lambda module, *_: seen.append(type(module.weight.data).__name__
                                           + str(tuple(module.weight.shape))))
        net(rows(0)).sum().backward()
        assert seen == ["Tensor(6, 5)"]  # inside, weights are whole and plain
        assert net.first.weight.placements == (dt.Shard(0),)
        assert net.first.weight.grad.placements == (dt.Shard(0),)
        with pytest.raises(RuntimeError):
            net(torch.ones(2, 3))
        assert all(isinstance(p, dt.DTensor) for p in net.parameters())
        net(rows(0)).sum().backward()

    on_mesh(body)


# Of up, down and the scale of two blocks; then with the last layer, whose weight its
# gradient needs, too.
@pytest.mark.parametrize("reshard, again", [(None, 6), (True, 8), (False, 0)])
def test_gathered_weights_go_after_the_forward_and_come_again(reshard, again):
    def body(mesh):
        net = make()
        for block in net.blocks:
            dt.fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
        dt.fully_shard(net, mesh=mesh, reshard_after_forward=reshard)
        gathered = []
        for module in (net.first, net.blocks[0].up):
            module.register_forward_hook(
                lambda m, *_: gathered.append(weakref.ref(m.weight)))
        x = rows(tessera.rank()).requires_grad_()
        loss = net(x).square().mean()
        gc.collect()
        # A root keeps its weights for the backward pass that comes at once.
        assert [ref() is None for ref in gathered] == [reshard is True, reshard is not False]
        with tessera.CommLog() as log:
            loss.backward()
        kinds = [entry.kind for entry in log.entries]
        assert kinds.count("reduce_scatter") == len(list(net.parameters()))
        return kinds.count("all_gather")

    assert on_mesh(body) == [again] * 4


def test_mixed_precision_is_that_of_the_policy():
    policy = dt.MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float64)

    def body(mesh):
        net = dt.fully_shard(make().float(), mesh=mesh, mp_policy=policy)
        seen = []
        net.first.register_forward_hook(
            lambda m, args, result: seen.append((args[0].dtype, m.weight.dtype, result.dtype)))
        result = net(rows(tessera.rank()))
        assert seen == [(torch.bfloat16,) * 3] and result.dtype == torch.float64
        result.square().mean().backward()
        assert net.first.weight.grad.dtype == torch.float32
        assert net.first.weight.dtype == torch.float32

    on_mesh(body)


def test_tensor_parallel_parameters_are_cut_further():
    def body(mesh):
        with tessera.ReplicatedRandom():
            net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))
        dt.parallelize_module(net, mesh["tp"], {
            "0": dt.ColwiseParallel(), "2": dt.RowwiseParallel()})
        assert net[0].weight.device_mesh == mesh["tp"]
        before = [whole(p) for p in net.parameters()]
        dt.fully_shard(net, mesh=mesh["dp"])
        for parameter, value in zip(net.parameters(), before):
            assert parameter.device_mesh == mesh
            assert torch.equal(whole(parameter), value)
        assert str(tessera.spec(net[0].weight)) == (
            "f32[8, 6] S(0)[1] S(0)[0] @ mesh(dp=2, tp=2)")
        assert str(tessera.spec(net[2].weight)) == "f32[5, 8] S(0) S(1) @ mesh(dp=2, tp=2)"

    on_mesh(body, (2, 2), ("dp", "tp"))


def test_tied_weights_stay_one_and_ignored_ones_stay_as_they_are():
    def body(mesh):
        net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=False))
        net[2].weight = net[0].weight
        kept = net[1].bias
        dt.fully_shard(net, mesh=mesh, ignored_params={kept})
        assert net[2].weight is net[0].weight and net[1].bias is kept
        assert len(list(net.parameters())) == 3 and not isinstance(kept, dt.DTensor)
        net(torch.tensor([[0, 3]])).sum().backward()
        assert net[2].weight is net[0].weight
        assert net[0].weight.grad.placements == (dt.Shard(0),)

    on_mesh(body)


def test_what_is_wrong_is_said_before_anything_changes():
    def body(mesh):
        net = dt.fully_shard(nn.Linear(4, 4), mesh=mesh["dp"])
        with pytest.raises(ValueError, match="fully sharded already; call it once"):
            dt.fully_shard(net, mesh=mesh["dp"])
        cube = mesh["dp", "tp"].unflatten(0, [1, 2], ["a", "b"])
        with pytest.raises(ValueError, match="one dim, or two with copies"):
            dt.fully_shard(nn.Linear(4, 4), mesh=cube)
        layer = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        dt.parallelize_module(layer, mesh["dp"], {"1": dt.ColwiseParallel()})
        with pytest.raises(ValueError, match="1.weight on .*: the parameter is on this mesh"):
            dt.fully_shard(layer, mesh=mesh["dp"])
        assert not isinstance(layer[0].weight, dt.DTensor)
        assert not isinstance(layer, dt.FSDPModule)
        layer[0](torch.ones(1, 4))

    on_mesh(body, (2, 2), ("dp", "tp"))
