"""One process of a torch.distributed job that converts DTensors and back.

  round_trip.py RANK SIZE STORE-FILE
"""
import random
import sys

import tessera
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (DTensor, Partial, Replicate, Shard,
                                      distribute_tensor)
from torch.distributed.tensor.placement_types import _StridedShard

CASES = 100
rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
# All ranks draw the same cases.
draw = random.Random(20)


def raises(kind, text, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"no {kind.__name__}: {text}")


def meshes():
    shapes = {2: [(2,), (1, 2)], 4: [(4,), (2, 2), (4, 1), (2, 1, 2)]}
    named = [init_device_mesh("cpu", s, mesh_dim_names=tuple("abc"[:len(s)]))
             for s in shapes[size]]
    order = torch.arange(size).flip(0)
    return [*named, DeviceMesh("cpu", order),
            DeviceMesh("cpu", order.reshape(shapes[size][-1]))]


def random_placement(ndim):
    kind = draw.randrange(6)
    dim = draw.randrange(ndim)
    if kind < 2:
        return Shard(dim)
    if kind < 4:
        return _StridedShard(dim, split_factor=draw.choice([2, 3]))
    if kind == 4:
        return Replicate()
    return Partial("sum")


def random_case(known):
    mesh = draw.choice(known)
    shape = [draw.choice([1, 2, 3, 4, 7, 8, 12]) for _ in range(draw.choice([1, 2, 3]))]
    return mesh, [random_placement(len(shape)) for _ in range(mesh.ndim)], shape


def notation(placements):
    """The same placements as we write them, by another way than from_torch."""
    words = []
    for p in placements:
        if isinstance(p, _StridedShard):
            words.append(f"SS({p.dim},{p.split_factor})")
        elif isinstance(p, Shard):
            words.append(f"S({p.dim})")
        else:
            words.append("R" if isinstance(p, Replicate) else "P(sum)")
    return " ".join(words)


def local_part(mesh, placements, shape):
    """This rank's shard of a tensor with a distinct value per element; of a Partial
    an addend, the value itself on the first coordinate and zero elsewhere."""
    value = torch.arange(1.0, 1 + torch.Size(shape).numel(),
                         dtype=torch.float64).reshape(shape)
    for dim, placement in enumerate(placements):
        place, parts = mesh.get_coordinate()[dim], mesh.size(dim)
        if isinstance(placement, Partial):
            value = value if place == 0 else torch.zeros_like(value)
        elif isinstance(placement, _StridedShard):
            # Every piece is cut for itself; a coordinate holds its part of each.
            pieces = torch.chunk(value, placement.split_factor, placement.dim)
            value = torch.cat([chunk(piece, parts, placement.dim, place)
                               for piece in pieces], placement.dim)
        elif isinstance(placement, Shard):
            value = chunk(value, parts, placement.dim, place)
    return value.contiguous()


def chunk(value, parts, dim, place):
    chunks = torch.chunk(value, parts, dim)
    return chunks[place] if place < len(chunks) else value.narrow(dim, 0, 0)


def check_case(mesh, placements, shape, seen):
    local = local_part(mesh, placements, shape)
    stride = torch.empty(shape).stride()
    dtensor = DTensor.from_local(local, mesh, placements, run_check=False,
                                 shape=torch.Size(shape), stride=stride)
    ours = tessera.from_torch(dtensor)
    where = f"{placements} {shape} on {mesh}"
    assert str(tessera.placements(ours)) == \
        str(tessera.parse_placements(notation(placements))), where
    assert list(ours.shape) == shape and ours.stride() == stride, where
    want = torch.arange(1.0, 1 + ours.numel(), dtype=torch.float64).reshape(shape)
    assert torch.equal(tessera.full_tensor(ours), want), where

    back = tessera.to_torch(ours)
    assert back.device_mesh == dtensor.device_mesh, where
    assert back.placements == dtensor.placements, where
    assert back.shape == dtensor.shape and back.stride() == dtensor.stride(), where
    # Written through one, read through the others.
    if local.numel():
        tessera.to_local(ours).view(-1)[0] = -5.0
        assert back.to_local().view(-1)[0].item() == -5.0, where
        assert local.view(-1)[0].item() == -5.0, where
        back.to_local().view(-1)[-1] = -7.0
        assert tessera.to_local(ours).view(-1)[-1].item() == -7.0, where
    ours.mul_(2)
    assert torch.equal(back.to_local(), tessera.to_local(ours)), where
    seen.update(type(p).__name__ for p in placements)


def check_gradients(mesh):
    value = torch.arange(8.0, dtype=torch.float64)
    leaf = distribute_tensor(value, mesh, [Shard(0)]).requires_grad_()
    tessera.from_torch(leaf).pow(2).sum().backward()
    assert torch.equal(leaf.grad.full_tensor(), 2 * value)
    ours = tessera.from_torch(leaf.detach()).requires_grad_()
    tessera.to_torch(ours).pow(2).sum().backward()
    assert torch.equal(tessera.full_tensor(ours.grad), 2 * value)


def check_own_mesh():
    group = tessera.from_process_group(dist.group.WORLD)
    mesh = tessera.DeviceMesh.from_group([group], "cpu", dim_names=["all"])
    x = tessera.distribute_tensor(torch.arange(6.0), mesh, "S(0)")
    dtensor = tessera.to_torch(x)
    assert torch.equal(dtensor.full_tensor(), torch.arange(6.0))
    again = tessera.from_torch(dtensor)
    assert tessera.device_mesh(again) == mesh


def check_errors(mesh):
    ragged = tessera.from_torch(distribute_tensor(
        torch.arange(4.0), mesh, [Replicate()]))
    sizes = [4] + [0] * (size - 1)
    ragged = tessera.redistribute(ragged, [tessera.RaggedShard(0, sizes)])
    raises(ValueError, "no counterpart in DTensor", tessera.to_torch, ragged)
    odd = DTensor.from_local(torch.ones(2), mesh, [Partial("bor")], run_check=False)
    raises(ValueError, "has no counterpart; redistribute()", tessera.from_torch, odd)
    alone = tessera.run_ranks(
        1, lambda: tessera.ones([2], tessera.init_device_mesh("cpu", (1,)), "R"))[0]
    raises(ValueError, "are not those of torch.distributed", tessera.to_torch, alone)


dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                        world_size=size)


def check_all():
    known = meshes()
    seen = set()
    for _ in range(CASES):
        check_case(*random_case(known), seen)
    assert seen == {"Shard", "_StridedShard", "Replicate", "Partial"}, seen
    check_gradients(known[0])
    check_own_mesh()
    check_errors(known[0])


check_all()
dist.destroy_process_group()
print(f"rank {rank}: {CASES} cases")
