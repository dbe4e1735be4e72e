"""A training that is saved and goes on elsewhere, with every optimizer of torch.optim:
on other ranks, in other layouts, as if it had not stopped."""
import math
import threading

import models
import pytest
import tessera
import torch
from tessera import checkpoint
from torch import nn, optim

OPTIMIZERS = {
    "ASGD": lambda p: optim.ASGD(p, 0.05, t0=1),
    "Adadelta": lambda p: optim.Adadelta(p, 1.0),
    "Adafactor": lambda p: optim.Adafactor(p, 0.05),
    "Adam": lambda p: optim.Adam(p, 0.01),
    "Adamax": lambda p: optim.Adamax(p, 0.01),
    "LBFGS": lambda p: optim.LBFGS(p, 0.1, max_iter=4, history_size=5),
    "LBFGS with a line search": lambda p: optim.LBFGS(
        p, 0.5, max_iter=3, line_search_fn="strong_wolfe"),
    "RAdam": lambda p: optim.RAdam(p, 0.05),
    "RMSprop": lambda p: optim.RMSprop(p, 0.01, momentum=0.5, centered=True),
    "Rprop": lambda p: optim.Rprop(p, 0.01),
}
# Those of checkpoint_test.py, and those below.
ELSEWHERE = {"Adagrad", "AdamW", "NAdam", "SGD", "Muon", "SparseAdam"}


class Net(models.Mlp):
    """With a frozen parameter, and one that two modules share."""

    def __init__(self):
        super().__init__()
        self.tied = nn.Linear(8, 12, dtype=models.DTYPE)
        self.tied.weight = self.up.weight
        self.down.bias.requires_grad_(False)

    def forward(self, x):
        return super().forward(x) + torch.tanh(self.tied(x)).sum(-1, keepdim=True)


DRAWING = threading.Lock()  # ranks are threads of one process, with one generator


def make():
    with DRAWING:
        torch.manual_seed(3)
        net = Net()
        x = torch.randn(12, 8, dtype=models.DTYPE)
        return net, x, torch.randn(12, 3, dtype=models.DTYPE)


def sharded(mesh, dim):
    net, x, y = make()

    def cut(name, module, on):
        for parameter in module.parameters(recurse=False):
            if not tessera.is_dtensor(parameter):
                tessera.make_dtensor_(
                    parameter, on, f"S({dim if parameter.dim() > 1 else 0})")

    tessera.distribute_module(net, mesh, cut)
    return (net, tessera.distribute_tensor(x, mesh, "S(0)"),
            tessera.distribute_tensor(y, mesh, "S(0)"))


def train(net, optimizer, x, y, steps):
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return losses


def groups(net):
    """Two groups, the second with options of its own."""
    return [{"params": [net.up.weight, net.down.bias]},
            {"params": [net.up.bias, net.down.weight, net.scale, net.tied.bias],
             "lr": 0.02}]


def all_of(net):
    return [p for p in net.parameters() if p.requires_grad]


def on_mesh(body, shape):
    return tessera.run_ranks(
        math.prod(shape), lambda: body(tessera.init_device_mesh("cpu", shape)),
        deadline=60)


def goes_on(path, make_optimizer, parameters):
    net, x, y = make()
    want = train(net, make_optimizer(parameters(net)), x, y, 6)

    def save(mesh):
        net, x, y = sharded(mesh, 0)
        optimizer = make_optimizer(parameters(net))
        first = train(net, optimizer, x, y, 3)
        checkpoint.save({"app": checkpoint.state_dict(net, optimizer)}, path)
        return first

    def load(mesh, when):
        net, x, y = sharded(mesh, 1)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.zero_()
        if when == "later":
            checkpoint.load({"app": {"model": checkpoint.state_dict(net)}}, path,
                            only=["app.model.*"])
        optimizer = make_optimizer(parameters(net))
        optimizer.param_groups[0]["lr"] = 123.0
        if when == "stepped":
            train(net, optimizer, x, y, 1)
        only = ["app.optimizer.*"] if when == "later" else []
        checkpoint.load({"app": checkpoint.state_dict(net, optimizer)}, path, only=only)
        return train(net, optimizer, x, y, 3)

    first = on_mesh(save, (4,))[0]
    for when in ("new", "stepped", "later"):
        for rest in on_mesh(lambda mesh: load(mesh, when), (2,)):
            assert first + rest == pytest.approx(want, rel=0, abs=1e-12), when


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_goes_on(tmp_path, name):
    # LBFGS has one group only.
    parameters = all_of if name.startswith("LBFGS") else groups
    goes_on(tmp_path / "c", OPTIMIZERS[name], parameters)


def test_muon_goes_on(tmp_path):
    """Its steps multiply in bfloat16, so that losses depend on the layout: in the one
    in which it was saved it goes on exactly, and another gets the same state."""
    def start(mesh, dim):
        net, x, y = sharded(mesh, dim)
        optimizer = optim.Muon([net.up.weight, net.down.weight], 0.02)
        return net, optimizer, x, y

    def body(mesh, path):
        net, optimizer, x, y = start(mesh, 0)
        train(net, optimizer, x, y, 3)
        checkpoint.save(checkpoint.state_dict(net, optimizer), path)
        momentum = tessera.full_tensor(optimizer.state[net.up.weight]["momentum_buffer"])
        want = train(net, optimizer, x, y, 3)
        net, optimizer, x, y = start(mesh, 0)
        checkpoint.load(checkpoint.state_dict(net, optimizer), path)
        assert train(net, optimizer, x, y, 3) == want
        net, optimizer, x, y = start(mesh, 1)
        checkpoint.load(checkpoint.state_dict(net, optimizer), path)
        got = optimizer.state[net.up.weight]["momentum_buffer"]
        assert str(tessera.placements(got)) == "[S(1)]"
        assert torch.equal(tessera.full_tensor(got), momentum)

    on_mesh(lambda mesh: body(mesh, tmp_path / "c"), (3,))


def test_sparse_adam_goes_on(tmp_path):
    def run(embedding, optimizer, steps):
        for step in range(steps):
            optimizer.zero_grad()
            embedding(torch.tensor([1, 3])).pow(2).sum().backward()
            optimizer.step()
        return embedding.weight.detach().clone()

    def new():
        torch.manual_seed(0)
        embedding = nn.Embedding(5, 2, sparse=True, dtype=models.DTYPE)
        return embedding, optim.SparseAdam(embedding.parameters(), 0.1)

    want = run(*new(), 6)
    embedding, optimizer = new()
    run(embedding, optimizer, 3)
    checkpoint.save(checkpoint.state_dict(embedding, optimizer), tmp_path / "c")
    embedding, optimizer = new()
    checkpoint.load(checkpoint.state_dict(embedding, optimizer), tmp_path / "c")
    assert torch.equal(run(embedding, optimizer, 3), want)


def test_every_optimizer_is_tried():
    there = {name for name, kind in vars(optim).items()
             if isinstance(kind, type) and kind is not optim.Optimizer}
    assert there == ({name.split(" ")[0] for name in OPTIMIZERS} | ELSEWHERE) & there
    assert ELSEWHERE - {"Muon"} <= there


def test_a_failed_load_leaves_the_dict_as_it_was(tmp_path):
    net, x, y = make()
    optimizer = optim.LBFGS(all_of(net), 0.1, max_iter=4)
    checkpoint.save(checkpoint.state_dict(net, optimizer), tmp_path / "new")
    train(net, optimizer, x, y, 2)
    checkpoint.save(checkpoint.state_dict(net, optimizer), tmp_path / "old")
    other = optim.LBFGS(all_of(net), 0.1)
    state = {**checkpoint.state_dict(net, other), "z": 1}
    with pytest.raises(ValueError, match="lacks 'z'"):
        checkpoint.load(state, tmp_path / "old")
    assert state["optimizer"]["state"] == {} and not other.state
    assert state["optimizer"]["param_groups"][0]["max_iter"] == 20
    with pytest.raises(ValueError, match="lacks 'optimizer.state.scale.H_diag'"):
        checkpoint.load(checkpoint.state_dict(net, optimizer), tmp_path / "new")
