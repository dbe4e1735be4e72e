"""A program of a user who has types: mypy --strict reads it, and it runs."""
from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Callable, Iterator

import tessera
import tessera.torch_compat as dt
import torch
from tessera import sharded_tensor as st
from torch import nn

WIDTH, HIDDEN, CLASSES = 8, 12, 6


@dataclass
class Report:
    losses: list[float]
    bytes: int
    kinds: list[str]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)
        self.down = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down(self.norm(self.up(x).relu()))
        return result


class Halved(tessera.ParallelStyle):
    """A style of one's own."""

    def apply(self, target: tessera.StyledModule) -> None:
        assert target.has("weight") and target.ranks > 0
        target.shard("weight", tessera.Shard(0))
        target.replicate()

        def before(args: tuple[object, ...],
                   kwargs: dict[str, object]) -> tuple[tuple[object, ...], dict[str, object]]:
            first = args[0]
            assert isinstance(first, torch.Tensor)
            return (target.moved(target.taken(first, tessera.Replicate()),
                                 tessera.Replicate()),), kwargs

        target.before(before)


def batches(mesh: tessera.DeviceMesh, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for step in range(steps):
        x = torch.arange(4.0 * WIDTH).add(step).sin().reshape(4, WIDTH)
        y = torch.tensor([0, 1, 2, 3])
        yield (tessera.distribute_tensor(x, mesh, "S(0) R"),
               tessera.distribute_tensor(y, mesh, [tessera.Shard(0), tessera.Replicate()]))


def plan() -> dict[str, tessera.ParallelStyle | tessera.ParameterParallel]:
    return {
        "up": tessera.ColwiseParallel(
            output_layouts=tessera.Replicate(), use_local_output=False),
        "down": tessera.RowwiseParallel(use_local_output=False)}


def train(mesh: tessera.DeviceMesh) -> Report:
    tessera.manual_seed(3)
    with tessera.ReplicatedRandom():
        net = Net()
    tessera.parallelize_module(net, mesh, plan())
    tessera.distribute_module(net, mesh)
    parallel = tessera.DataParallel(net, mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    average = tessera.Ema(net, 0.9)
    losses: list[float] = []
    with tessera.CommLog() as _:
        pass
    log = tessera.CommLog()
    log.__enter__()
    for x, y in batches(mesh, 3):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        parallel.reduce_gradients()
        norm: torch.Tensor = tessera.clip_grad_norm(net.parameters(), 1.0)
        assert not tessera.is_dtensor(norm)
        optimizer.step()
        optimizer.zero_grad()
        average.update()
        losses.append(float(loss))
    log.__exit__(None, None, None)
    entries: list[tessera.CommLogEntry] = log.entries
    return Report(losses, log.bytes, sorted({entry.kind for entry in entries}))


def layouts() -> tuple[list[str], int, list[int]]:
    source = tessera.Layout([8, 4], "mesh(dp=2, tp=2)", "S(0) R")
    target = tessera.Layout([8, 4], "mesh(dp=2, tp=2)", [tessera.Replicate(), tessera.Shard(1)])
    model = tessera.MachineModel(link=tessera.Link(latency=1e-6), memory_limit=1 << 20)
    assert model.memory_limit == 1 << 20 < tessera.MachineModel().memory_limit
    found: tessera.RedistributePlan = tessera.plan_redistribution(source, target, 4, model)
    box: tessera.Box = target.box([0, 1])
    assert box.numel() == 16 and not box.empty()
    dtype, layout = tessera.parse_layout("f32[8, 4] S(0) R @ mesh(2, 2)")
    assert dtype == "f32" and layout.local_shape([1, 0]) == [4, 4]
    return [step.kind for step in found.steps], found.bytes, source.owner_ranks([7, 0])


def mapped(mesh: tessera.DeviceMesh) -> float:
    @tessera.local_map(out_placements="P(sum) R", in_placements=("S(0) R",))
    def total(part: torch.Tensor) -> torch.Tensor:
        return part.sum()

    twice: Callable[[torch.Tensor], torch.Tensor] = tessera.local_map(
        double, out_placements=[tessera.Shard(0), tessera.Replicate()])
    x = tessera.ones([4, 2], mesh, "S(0) R")
    return float(twice(x).sum()) + float(total(x))


def double(part: torch.Tensor) -> torch.Tensor:
    return 2 * part


def styled(mesh: tessera.DeviceMesh) -> list[tessera.Placement]:
    layer = tessera.parallelize_module(nn.Linear(4, 4), mesh["tp"], Halved())
    layer(torch.ones(2, 4))
    weight = layer.weight
    assert isinstance(weight, torch.Tensor)
    return tessera.placements(weight)


def with_compat_names(mesh: tessera.DeviceMesh) -> tuple[int, tuple[dt.Placement, ...]]:
    t: dt.DTensor = dt.distribute_tensor(
        torch.arange(8.0), mesh, [dt.Shard(0), dt.Replicate()])
    with dt.CommDebugMode() as mode:
        whole = t.redistribute(placements=[dt.Replicate(), dt.Replicate()])
    local: torch.Tensor = whole.to_local()
    assert local.shape == (8,) and isinstance(t.placements[0], dt.Shard)
    blank: dt.DTensor = dt.zeros(4, 2, device_mesh=mesh)
    assert blank.device_mesh == mesh
    return mode.get_total_counts(), t.placements


def with_specs() -> float:
    spec = st.ChunkShardingSpec(0, [f"rank:{r}/cpu" for r in range(tessera.world_size())])
    t: st.ShardedTensor = st.shard_tensor(torch.arange(8.0), spec)
    doubled = st.mul(t, 2) + t
    rows: tuple[int, ...] = doubled.size()
    assert rows == (8,) and doubled.size(0) == 8
    data: bytes = st.serialize(spec)
    again = st.deserialize(st.ShardingSpec, data)
    assert again == spec
    layer = st.shard_module(nn.Linear(2, 8), st.ShardingPlan({"weight": spec}))
    assert tessera.is_dtensor(layer.weight)
    return float(tessera.full_tensor(st.to_dtensor(doubled)).sum())


def saved(mesh: tessera.DeviceMesh, folder: str) -> bool:
    value = tessera.ones([6], mesh, "S(0) R")
    tessera.checkpoint.save({"value": value, "step": 3}, f"{folder}/state", overwrite=True)
    state: dict[str, object] = {"value": tessera.zeros([6], mesh, "R S(0)"), "step": 0}
    tessera.checkpoint.load(state, f"{folder}/state")
    loaded = state["value"]
    assert isinstance(loaded, torch.Tensor)
    return bool((loaded == 1).all()) and state["step"] == 3


def fully_sharded(mesh: tessera.DeviceMesh) -> int:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    handle: tessera.FullyShard = tessera.fully_shard(
        net, mesh, groups=["0"], mesh_dim="dp", param_dtype=torch.bfloat16)
    net(tessera.ones([4, 4], mesh, "S(0) R")).sum().backward()
    report: tessera.FullyShardReport = handle.report()

    grid = dt.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    policy = dt.MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    linear: nn.Linear = dt.fully_shard(nn.Linear(4, 2), mesh=grid["dp"], mp_policy=policy)
    assert isinstance(linear, dt.FSDPModule) and linear.in_features == 4
    return report.reductions


def main() -> None:
    world: tessera.World = tessera.init()
    mesh = tessera.init_device_mesh("cpu", (2, world.size() // 2), ("dp", "tp"))
    report = train(mesh)
    assert report.losses[1] < report.losses[0] and report.bytes > 0, report
    kinds, bytes_moved, owners = layouts()
    assert kinds and bytes_moved > 0 and owners == [2, 3]
    assert mapped(mesh) == 24.0
    assert styled(mesh) == [tessera.Shard(0)]
    count, placements = with_compat_names(mesh)
    assert count == 1 and placements == (dt.Shard(0), dt.Replicate())
    assert with_specs() == 3 * 28.0
    assert fully_sharded(mesh) == 2
    assert saved(mesh, FOLDER)
    with tessera.StrictMode(), tessera.MeshGuard(mesh):
        assert tessera.current_mesh() == mesh
    if world.rank() == 0:
        print("typed", report.kinds)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as FOLDER:
        tessera.run_ranks(4, main)
