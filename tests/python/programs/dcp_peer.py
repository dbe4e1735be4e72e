"""One process of a torch.distributed job that saves DTensors by PyTorch's DCP, and then
loads what this library wrote; tessera.checkpoint runs inside of it too.

  dcp_peer.py RANK SIZE STORE-FILE

$TESSERA_CHECKPOINTS is a folder. The job writes `python`, with its tensors in
`expected.pt`, and when `ready` is there, loads `ours_*`, which hold the same.
"""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import states  # noqa: E402
import tessera  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    get_optimizer_state_dict, set_optimizer_state_dict)
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: E402
from torch.distributed.tensor._utils import (  # noqa: E402
    compute_local_shape_and_global_offset)

rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
folder = pathlib.Path(os.environ["TESSERA_CHECKPOINTS"])
WAIT_S = 100


def layouts():
    """Meshes and placements; those that cut a dim that a tensor lacks become R."""
    line = init_device_mesh("cpu", (size,))
    known = [(line, [Shard(0)]), (line, [Shard(1)]), (line, [Replicate()])]
    if size == 2:
        known.append((init_device_mesh("cpu", (1, 2)), [Shard(1), Shard(0)]))
    else:
        square = init_device_mesh("cpu", (2, 2))
        known += [(square, [Shard(0), Shard(1)]), (square, [Shard(0), Shard(0)]),
                  (square, [Replicate(), Shard(0)]), (square, [Shard(1), Replicate()])]
    return known


def slices(tensor, mesh, placements):
    sizes, offsets = compute_local_shape_and_global_offset(
        tensor.shape, mesh, placements)
    return tuple(slice(o, o + s) for o, s in zip(offsets, sizes))


def dtensor(tensor, layout):
    """A DTensor of any dtype, without communication."""
    mesh, placements = layout
    placements = [p if not isinstance(p, Shard) or p.dim < tensor.dim() else Replicate()
                  for p in placements]
    local = tensor[slices(tensor, mesh, placements)].clone()
    return DTensor.from_local(local, mesh, placements, run_check=False,
                              shape=tensor.shape, stride=tensor.stride())


def zeros(place, state):
    return states.map_tensors(lambda t: place(torch.zeros_like(t)), state)


class InTurn:
    """Gives each tensor another layout."""

    def __init__(self, known, start=0):
        self.known, self.count = known, start

    def __call__(self, tensor):
        self.count += 1
        return dtensor(tensor, self.known[self.count % len(self.known)])


def training(layout):
    """A model of DTensors and its optimizer, after two steps. Gradients are made by
    hand: DTensor's own may have placements that its AdamW refuses."""
    mesh, placements = layout
    net, optimizer = states.training(lambda p: torch.nn.Parameter(dtensor(
        p.detach(), layout if p.dim() > 1 else (mesh, [Replicate()] * mesh.ndim))))
    for step in range(2):
        for p in net.parameters():
            grad = torch.arange(p.numel(), dtype=p.dtype).reshape(p.shape).sin() + step
            p.grad = dtensor(grad, (mesh, p.placements))
        optimizer.step()
    return net, optimizer


def state_of(net, optimizer):
    return {"model": net.state_dict(),
            "optimizer": get_optimizer_state_dict(net, optimizer)}


def whole(value):
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return value.full_tensor() if isinstance(value, DTensor) else value


def check_local(name, got, want):
    here = want[slices(want, got.device_mesh, got.placements)]
    assert states.bits(got.to_local()) == states.bits(here), (
        name, got.device_mesh, got.placements)


def use_ours(known):
    """tessera.checkpoint inside this job, on the memory of DTensors."""
    path = folder / "within"
    mine = states.map_tensors(
        tessera.from_torch, states.map_tensors(InTurn(known, 1), states.tensors()))
    tessera.checkpoint.save({"all": mine, "values": states.values()}, path)
    beside = folder / "beside"
    handle = tessera.checkpoint.save_async({"all": mine, "values": states.values()},
                                           beside)
    handle.wait()
    assert handle.done() and handle.path == str(beside), handle.path
    tessera.checkpoint.save_step_async({"all": mine}, folder, 7, keep=2)
    for there in (path, beside, folder / "step_000000000007", folder / "python"):
        theirs = zeros(InTurn(known, 2), states.tensors())
        state = {"all": states.map_tensors(tessera.from_torch, theirs)}
        tessera.checkpoint.load(state, there, only="all.*")
        states.for_each_pair(check_local, "", theirs, states.tensors())
    try:
        tessera.checkpoint.save({"all": object() if rank == 1 else mine},
                                folder / "none")
    except TypeError as error:
        assert "on rank 1: checkpoint: 'all' is of" in str(error), str(error)
    else:
        raise AssertionError("the object was saved")


def check_bits(name, got, want):
    assert states.bits(got) == states.bits(want), name


def save():
    known = layouts()
    net, optimizer = training(known[3])
    trained = state_of(net, optimizer)
    state = {"app": trained, "all": states.map_tensors(InTurn(known), states.tensors()),
             "values": states.values()}
    dcp.save(state, checkpoint_id=str(folder / "python"))
    use_ours(known)
    expected = whole(trained)
    if rank == 0:
        torch.save(expected, folder / "expected.tmp")
        os.rename(folder / "expected.tmp", folder / "expected.pt")
    return expected


def load(path, expected, start):
    known = layouts()
    net, optimizer = training(known[start % len(known)])
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    state = {"app": state_of(net, optimizer),
             "all": zeros(InTurn(known, start), states.tensors()),
             "values": states.map_values(lambda v: None, states.values())}
    dcp.load(state, checkpoint_id=str(path))
    set_optimizer_state_dict(net, optimizer, state["app"]["optimizer"])
    assert state["values"] == states.values(), state["values"]
    states.for_each_pair(check_local, "", state["all"], states.tensors())
    got = whole(state_of(net, optimizer))
    for part in ("model", "optimizer"):
        states.for_each_pair(check_bits, part, got[part], expected[part])


def load_safetensors(path, start):
    """The reader that PyTorch has for files of Hugging Face."""
    tensors = states.safe_tensors()
    state = zeros(InTurn(layouts(), start), tensors)
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(path)))
    states.for_each_pair(check_local, "", state, tensors)


dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                        world_size=size)
expected = save()
end = time.monotonic() + WAIT_S
while not (folder / "ready").exists():
    assert time.monotonic() < end, "the other side is late"
    time.sleep(0.05)
paths = sorted(folder.glob("ours_*"))
for number, path in enumerate(paths):
    load(path, expected, number)
load_safetensors(folder / "safetensors", 1)
dist.destroy_process_group()
print(f"rank {rank}: {len(paths)}", flush=True)
os._exit(0)  # PyTorch 2.13 may end with "terminate called" while it is torn down
