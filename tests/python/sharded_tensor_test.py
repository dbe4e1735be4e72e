"""tessera.sharded_tensor on ranks that are threads, against plain tensors."""
import copy

import pytest
import tessera
import torch
from tessera import sharded_tensor as st
from torch import nn

WHOLE = torch.arange(40.0).reshape(10, 4)


def places(n):
    return [f"rank:{rank}/cpu" for rank in range(n)]


def pinwheel():
    """Five boxes of a 3 x 3 tensor that no mesh has; rank 1 holds two of them."""
    boxes = [([0, 0], [1, 2], 0), ([0, 2], [2, 1], 1), ([2, 1], [1, 2], 2),
             ([1, 0], [2, 1], 3), ([1, 1], [1, 1], 1)]
    return st.EnumerableShardingSpec(
        [st.ShardMetadata(o, s, f"rank:{r}/cpu") for o, s, r in boxes])


def gathered(tensor, sizes):
    out = torch.zeros(sizes) if tessera.rank() == 0 else None
    tensor.gather(0, out)
    return out


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_chunks_are_those_of_the_tensor_and_come_back(ranks):
    def body():
        spec = st.ChunkShardingSpec(0, places(ranks))
        t = st.shard_tensor(WHOLE, spec)
        chunks = WHOLE.chunk(ranks)
        mine = chunks[tessera.rank()] if tessera.rank() < len(chunks) else WHOLE[:0]
        assert torch.equal(t.local_tensor(), mine)
        assert t.size() == t.shape == (10, 4) and t.size(1) == 4 and t.dtype == torch.float32
        assert [s.shard_sizes[0] for s in t.metadata().shards_metadata][:len(chunks)] == [
            c.shape[0] for c in chunks]
        out = gathered(t, (10, 4))
        assert out is None or torch.equal(out, WHOLE)
        columns = st.ChunkShardingSpec(1, places(ranks))
        assert t.resharded(columns).sharding_spec() == columns
        assert t.sharding_spec() == spec
        assert t.reshard(columns) is not None and t.sharding_spec() == columns
        out = gathered(t, (10, 4))
        assert out is None or torch.equal(out, WHOLE)

    tessera.run_ranks(ranks, body, deadline=30)


def test_any_boxes_and_several_per_rank():
    value = torch.arange(9.0).reshape(3, 3)

    def body():
        spec = pinwheel()
        t = spec.shard(value)
        assert len(t.local_shards()) == (2 if tessera.rank() == 1 else 1)
        for shard in t.local_shards():
            assert torch.equal(shard.tensor, st.narrow_tensor(value, shard.metadata))
        assert not st.has_mesh(t)
        doubled = t * 2 + 1
        out = gathered(doubled, (3, 3))
        assert out is None or torch.equal(out, value * 2 + 1)
        assert not st.equal(t, doubled) and st.equal(t, st.clone(t))
        again = t.resharded(st.ChunkShardingSpec(0, places(3)))
        assert st.has_mesh(again) and st.equal(t, again)
        if tessera.rank() < 3:
            assert torch.equal(tessera.full_tensor(st.to_dtensor(again)), value)
        kept = st.restore(st.save(t))
        assert st.equal(kept, t) and kept.sharding_spec() == spec
        shards = [st.Shard(s.tensor.clone(), s.metadata) for s in t.local_shards()]
        made = st.init_from_local_shards(shards, 3, 3)
        assert st.equal(made, t)
        about = t.metadata()
        assert st.deserialize(st.ShardedTensorMetadata, st.serialize(about)) == about
        assert st.equal(
            st.init_from_local_shards_and_global_metadata(shards, about), t)

    tessera.run_ranks(4, body, deadline=30)


def test_makers_and_operators_agree_with_torch():
    def body():
        spec = st.ChunkShardingSpec(0, places(2))
        for make, value in ((st.zeros, 0), (st.ones, 1)):
            t = make(spec, 4, 2, dtype=torch.float64)
            assert st.equal(t, st.full(spec, [4, 2], value, dtype=torch.float64))
            assert make(spec, (4, 2)).numel() == make(spec, [4, 2]).numel() == 8
        a = st.shard_tensor(WHOLE, spec)
        cases = {
            "gelu": torch.nn.functional.gelu(WHOLE), "tanh": WHOLE.tanh()}
        for name, wanted in cases.items():
            out = gathered(getattr(st, name)(a), (10, 4))
            assert out is None or torch.allclose(out, wanted), name
        out = gathered(st.softmax(a, 1), (10, 4))
        assert out is None or torch.allclose(out, WHOLE.softmax(1))
        out = gathered(st.dispatch("aten::exp", a * 0.1)[0], (10, 4))
        assert out is None or torch.allclose(out, (WHOLE * 0.1).exp())
        ids = torch.tensor([3, 0, 9])
        assert torch.equal(st.embedding(ids, a), WHOLE[ids])
        bags = st.embedding_bag(torch.tensor([[3, 0], [9, 1]]), a, mode="sum")
        assert torch.equal(bags, torch.stack([WHOLE[3] + WHOLE[0], WHOLE[9] + WHOLE[1]]))
        drawn = st.rand(spec, 8, 2)
        assert 0 <= drawn.local_tensor().min() and drawn.local_tensor().max() < 1
        with pytest.raises(ValueError, match='must be "sum", "mean" or "max"'):
            st.embedding_bag(ids, a, mode="median")
        with pytest.raises(TypeError, match="an argument must be a tensor"):
            st.add(a, object())

    tessera.run_ranks(2, body, deadline=30)


MODEL = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))


def test_a_module_by_a_plan_trains_as_a_plain_one():
    plain = copy.deepcopy(MODEL)
    wanted = []
    for module, losses in ((plain, wanted),):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            loss = module(WHOLE / 40).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    class Frozen(st.Sharder):
        def shard(self, module):
            return nn.Tanh()

    def body():
        net = copy.deepcopy(MODEL)
        rows, columns = (st.ChunkShardingSpec(d, places(2)) for d in (0, 1))
        plan = st.ShardingPlan(
            {"0.weight": rows, "0.bias": rows, "2.weight": columns},
            output_plan={"2": rows}, return_local_tensor=["2"])
        assert st.shard_module(net, plan) is net
        assert tessera.placements(net[2].weight) == [tessera.Shard(1)]
        x = tessera.distribute_tensor(
            WHOLE / 40, tessera.device_mesh(net[0].weight), "R")
        with tessera.ImplicitReplication():
            y = net(x)
        assert not tessera.is_dtensor(y) and y.shape == (5, 4)
        assert torch.allclose(y, MODEL(WHOLE / 40)[5 * tessera.rank():][:5])

        net = copy.deepcopy(MODEL)
        st.shard_module(net, st.ShardingPlan({"0.weight": rows, "2.weight": columns}))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        losses = []
        with tessera.ImplicitReplication():
            for _ in range(3):
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        assert losses == pytest.approx(wanted, rel=1e-5)

        net = st.shard_module(copy.deepcopy(MODEL), st.ShardingPlan({"1": Frozen()}))
        assert isinstance(net[1], nn.Tanh)

    tessera.run_ranks(2, body, deadline=30)


def test_errors_name_what_is_wrong_on_every_rank():
    def body():
        spec = st.ChunkShardingSpec(0, places(2))
        with pytest.raises(ValueError, match='"weights" names no parameter; there are 0.w'):
            st.shard_module(MODEL, st.ShardingPlan({"weights": spec}))
        with pytest.raises(ValueError, match='"7" names no module'):
            st.shard_module(MODEL, st.ShardingPlan({}, {"7": spec}))
        with pytest.raises(TypeError, match="a ShardingSpec or a Sharder; got int"):
            st.shard_module(MODEL, st.ShardingPlan({"0.weight": 3}))
        with pytest.raises(ValueError):
            st.check_tensor([st.ShardMetadata([0], [3])], [4])
        with pytest.raises(ValueError):
            st.RemoteDevice("rank:x/cpu")
        with pytest.raises(TypeError, match="must be one that serialize"):
            st.deserialize(int, b"")
        with pytest.raises(ValueError):
            st.deserialize(st.ShardMetadata, b"TESS")
        assert not any(tessera.is_dtensor(p) for p in MODEL.parameters())

    tessera.run_ranks(2, body, deadline=30)
    assert {st.RemoteDevice("rank:1/cpu"), st.RemoteDevice("rank:1/cpu")} == {
        st.RemoteDevice("rank:1/cpu")}
