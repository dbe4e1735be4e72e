"""tessera.torch_compat: programs that were written with torch.distributed.tensor run with
their imports changed, to the same losses; and what its names are."""
import json

import processes
import pytest
import tessera
import tessera.torch_compat as dt
import torch
from torch import nn


@pytest.fixture(scope="module")
def runs():
    """What each program of tutorials/ found under both imports, by rank."""
    return [{found["name"]: found for found in map(json.loads, output.splitlines())}
            for output in processes.run_job("changed_import.py", 4)]


@pytest.mark.parametrize("name", sorted(
    path.stem for path in (processes.PROGRAMS / "tutorials").glob("*.py")))
def test_losses_are_those_of_the_program_with_its_own_imports(runs, name):
    assert len(runs) == 4
    for run in runs:
        assert len(run[name]["torch"]) >= 4
        assert run[name]["tessera"] == pytest.approx(run[name]["torch"], rel=2e-6)


def on_mesh(body, shape=(4,), names=("tp",)):
    size = torch.Size(shape).numel()
    return tessera.run_ranks(size, lambda: body(
        dt.init_device_mesh("cpu", shape, mesh_dim_names=names)), deadline=60)


def test_placements_and_tensors_are_instances_of_their_names():
    kinds = [dt.Shard(1), dt.Replicate(), dt.Partial("max"), tessera.StridedShard(0, 2)]
    assert [[isinstance(p, k) for k in (dt.Shard, dt.Replicate, dt.Partial)]
            for p in kinds] == [[True, False, False], [False, True, False],
                                [False, False, True], [True, False, False]]
    assert all(isinstance(p, dt.Placement) for p in kinds) and not isinstance(3, dt.Shard)

    def body(mesh):
        t = dt.DTensor.from_local(torch.ones(2, 3), mesh, [dt.Shard(0)])
        parameter = nn.Parameter(t)
        assert isinstance(t, dt.DTensor) and isinstance(parameter, dt.DTensor)
        assert parameter.placements == (dt.Shard(0),) and t.device_mesh == mesh
        assert t._local_tensor.shape == (2, 3)
        plain = torch.ones(2)
        assert not isinstance(plain, dt.DTensor)
        for name in ("redistribute", "to_local", "full_tensor", "placements",
                     "device_mesh", "_local_tensor"):
            assert hasattr(t, name) and not hasattr(plain, name)
        with pytest.raises(AttributeError, match="'to_local': the tensor is plain"):
            plain.to_local()
        with pytest.raises(ValueError, match="redistribute: placements are needed"):
            t.redistribute()

    on_mesh(body)


def test_meshes_have_the_methods_of_torch():
    def body(mesh):
        assert isinstance(mesh, dt.DeviceMesh) and mesh.mesh_dim_names == ("dp", "tp")
        assert mesh.mesh.tolist() == [[0, 1], [2, 3]]
        rank = tessera.rank()
        assert mesh.get_rank() == rank and mesh.get_coordinate() == [rank // 2, rank % 2]
        assert mesh.get_local_rank("tp") == rank % 2 == mesh["tp"].get_local_rank()
        assert mesh.get_group("dp").size() == 2
        assert mesh._flatten("all").mesh_dim_names == ("all",)
        assert mesh["dp", "tp"]._flatten().shape == (4,)
        with mesh:
            with mesh["tp"]:
                assert dt.zeros(3).device_mesh == mesh["tp"]
            assert dt.ones(2, 2, placements=[dt.Shard(0), dt.Shard(1)]).device_mesh == mesh
        with pytest.raises(ValueError):
            dt.zeros(3)
        unnamed = dt.DeviceMesh("cpu", torch.arange(4))
        assert unnamed.mesh_dim_names is None and unnamed.ndim == 1

    on_mesh(body, (2, 2), ("dp", "tp"))


def test_factories_take_sizes_in_both_ways():
    def body(mesh):
        where = {"device_mesh": mesh, "placements": [dt.Shard(0)]}
        for make in (dt.zeros, dt.ones, dt.empty, dt.rand, dt.randn):
            for sizes in ((4, 2), ((4, 2),), ([4, 2],), (torch.Size([4, 2]),)):
                t = make(*sizes, dtype=torch.float64, requires_grad=True, **where)
                assert t.shape == (4, 2) and t.to_local().shape == (1, 2)
                assert t.dtype == torch.float64 and t.requires_grad
        assert dt.full((4,), 7.0, **where).full_tensor().tolist() == [7.0] * 4
        assert dt.full((2, 2), fill_value=3, device_mesh=mesh).sum().item() == 12
        assert dt.zeros((), device_mesh=mesh).shape == ()
        with pytest.raises(TypeError, match="there is no argument colour"):
            dt.zeros(2, device_mesh=mesh, colour=1)
        with pytest.raises(ValueError, match="the layout must be strided"):
            dt.zeros(2, device_mesh=mesh, layout=torch.sparse_coo)

    on_mesh(body)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.down(self.up(x))


def test_collectives_are_counted_by_kind_and_by_module():
    functional = torch.ops.c10d_functional

    def body(mesh):
        net = dt.parallelize_module(Block(), mesh, {
            "up": dt.ColwiseParallel(input_layouts=dt.Shard(0)),
            "down": dt.RowwiseParallel(output_layouts=dt.Shard(0))})
        with dt.CommDebugMode() as mode:
            net(torch.ones(2, 4)).sum().backward()
        assert mode.get_total_counts() == 3
        counts = mode.get_comm_counts()
        assert counts[functional.all_gather_into_tensor] == 2
        assert counts[functional.reduce_scatter_tensor] == 1
        assert counts[functional.all_to_all_single] == 0
        by_module = mode.comm_module_counts
        assert by_module["Block.up"]["forward"] == {functional.all_gather_into_tensor: 1}
        assert by_module["Block.down"]["forward"] == {functional.reduce_scatter_tensor: 1}
        assert sum(by_module["Block"]["forward"].values()) == 2
        assert by_module["Global"]["backward"] == {functional.all_gather_into_tensor: 1}
        with dt.CommDebugMode() as mode:
            pass
        assert mode.get_total_counts() == 0 and len(mode.comm_module_counts) == 1

    on_mesh(body)


def test_what_a_check_of_replicas_and_a_source_rank_do():
    def body(mesh):
        mine = torch.full((2,), float(tessera.rank()))
        assert dt.distribute_tensor(mine, mesh, [dt.Replicate()]).to_local().sum() == 0
        own = dt.distribute_tensor(mine, mesh, [dt.Replicate()], src_data_rank=None)
        assert own.to_local().sum() == 2 * tessera.rank()
        with pytest.raises((RuntimeError, ValueError)):
            dt.DTensor.from_local(mine, mesh, [dt.Replicate()], run_check=True)

    on_mesh(body)
