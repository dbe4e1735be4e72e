"""PyTorch's side of the programs of fully_shard_test.py, each on two Gloo processes.

    fully_shard_pytorch.py NAME...   prints "NAME: right", "NAME: wrong ..." or
                                     "NAME: error: ..." for each, as rank 0 saw it
"""
import copy
import datetime
import os
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.optim.swa_utils import AveragedModel

SECONDS = 20


class Net(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8)
        self.e = nn.Embedding(8, 8)
        self.loss = loss

    def forward(self, x):
        return self.loss(self, x)


def batch():
    return torch.arange(32.0).mul(0.7390851).add(0.5).sin().view(4, 8)


def compare(loss, groups, x, prepare=lambda net: None, use=lambda net, x: net(x), **how):
    """Says whether gradients are those of the plain net on the whole batch."""
    mesh, rank = init_device_mesh("cpu", (2,)), dist.get_rank()
    torch.manual_seed(0)
    plain = Net(loss)
    prepare(plain)
    net = copy.deepcopy(plain)
    prepare(net)
    for name in groups:
        fully_shard(getattr(net, name), mesh=mesh, **how)
    fully_shard(net, mesh=mesh, **how)
    plain(x).backward()
    use(net, x.chunk(2)[rank]).backward()
    for name, want in plain.named_parameters():
        got = dict(net.named_parameters())[name].grad
        if (want.grad is None) != (got is None):
            return f"wrong gradient of {name}"
        if got is not None and not torch.allclose(
                2 * got.full_tensor(), want.grad, atol=1e-4):  # its average over ranks
            return f"wrong gradient of {name}"
    return "right"


def view():
    class Inner(nn.Linear):
        def forward(self, x):
            return super().forward(x).unsqueeze(0)

    def loss(net, x):
        y = net.a(net.b(x)).squeeze(0)
        y += 1
        return net.b(y).square().sum()

    def prepare(net):
        net.a.__class__ = Inner
    return compare(loss, ["a"], batch(), prepare)


def method():
    def features(net, x):
        return nn.functional.linear(x, net.a.weight, net.a.bias).square().sum()
    return compare(features, ["a", "b"], batch(), use=features)


def tied():
    def tie(net):
        net.b.weight = net.e.weight
    return compare(
        lambda net, x: nn.functional.linear(net.e(x), net.b.weight).square().sum(),
        ["e", "b"], torch.arange(4), tie)


def uneven():
    def prepare(net):
        net.a = nn.Linear(7, 8)
        with torch.no_grad():
            net.a.weight.copy_(torch.arange(56.0).sin().view(8, 7))
    return compare(
        lambda net, x: net.b(net.a(x[:, :7])).square().sum(), ["a"], batch(), prepare,
        shard_placement_fn=lambda p: Shard(p.dim() - 1))


def dtypes():
    return compare(
        lambda net, x: net.b(net.a(x).double()).square().sum(), [], batch(),
        lambda net: net.b.double())


def diverge():
    def loss(net, x):
        first = not dist.is_initialized() or dist.get_rank() == 0
        return (net.a if first else net.b)(x).sum()
    mesh, rank = init_device_mesh("cpu", (2,)), dist.get_rank()
    torch.manual_seed(0)
    net = Net(loss)
    fully_shard(net, mesh=mesh)
    net(torch.full((2, 8), rank + 1.0)).backward()
    # Rank 0 alone uses a: its gradient is 2 x 1, averaged over the ranks.
    grad = net.a.weight.grad
    got = None if grad is None else sorted(set(grad.to_local().flatten().tolist()))
    return "right" if got == [1.0] else f"wrong gradient of a on rank {rank}: {got}, not 1"


def average():
    net = Net(None)
    fully_shard(net, mesh=init_device_mesh("cpu", (2,)))
    AveragedModel(net)
    return "right"


def clip():
    one = init_device_mesh("cpu", (2,))
    two = init_device_mesh("cpu", (1, 2), mesh_dim_names=("x", "y"))
    parameters = [
        nn.Parameter(distribute_tensor(torch.ones(4, 4), one, [Shard(0)])),
        nn.Parameter(distribute_tensor(torch.ones(4, 4), two, [Replicate(), Shard(0)]))]
    for p in parameters:
        p.grad = p.detach().clone()
    norm = nn.utils.clip_grad_norm_(parameters, 1.0)
    return "right" if abs(norm.item() - 32**0.5) < 1e-4 else f"wrong norm {norm}"


def work(rank, name, store, results):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo", init_method="file://" + store, rank=rank, world_size=2,
            timeout=datetime.timedelta(seconds=SECONDS))
        said = globals()[name]()
    except Exception as error:
        said = f"error: {type(error).__name__}: " + " ".join(str(error).split())
    results.put((rank, said))
    results.close()
    results.join_thread()
    os._exit(0)


def run(name):
    context = mp.get_context("fork")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(
                target=work, args=(rank, name, os.path.join(folder, "store"), results))
            for rank in range(2)]
        for process in ranks:
            process.start()
        said = dict(results.get(timeout=2 * SECONDS) for _ in ranks)
        for process in ranks:
            process.join()
    return said[0] if said[0] != "right" else said[1]


if __name__ == "__main__":
    for program in sys.argv[1:]:
        print(f"{program}: {run(program)}", flush=True)
