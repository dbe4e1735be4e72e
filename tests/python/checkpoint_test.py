"""tessera.checkpoint: dicts, modules and optimizers, with PyTorch's files too."""
import copy
import math
import threading

import models
import pytest
import tessera
import torch
import torch.distributed.checkpoint as dcp
from tessera import checkpoint
from torch.distributed.checkpoint.state_dict import (get_optimizer_state_dict,
                                                     set_optimizer_state_dict)

FORMATS = ["tessera", "dcp", "safetensors"]
VALUE = torch.arange(70, dtype=torch.float64).reshape(10, 7)


def on_mesh(body, shape):
    """Runs body(mesh) on the ranks of a mesh; returns their results."""
    return tessera.run_ranks(
        math.prod(shape), lambda: body(tessera.init_device_mesh("cpu", shape)),
        deadline=60)


def zeros(mesh, placements):
    return tessera.zeros(list(VALUE.shape), mesh, placements, dtype=VALUE.dtype)


@pytest.mark.parametrize("format", FORMATS)
def test_four_ranks_save_and_two_load_in_other_placements(tmp_path, format):
    def save(mesh):
        checkpoint.save({"a": tessera.distribute_tensor(VALUE, mesh, "S(0) S(1)"),
                         "b": [tessera.distribute_tensor(VALUE + 1, mesh, "R S(0)")],
                         "plain": VALUE + 2}, tmp_path / "c", format=format)

    def load(mesh):
        a, b = zeros(mesh, "S(1)"), zeros(mesh, "R")
        state = {"a": a, "b": [b], "plain": torch.zeros_like(VALUE)}
        checkpoint.load(state, tmp_path / "c")
        assert state["a"] is a and state["b"][0] is b, "tensors are filled in place"
        return [tessera.full_tensor(a), tessera.full_tensor(b), state["plain"]]

    on_mesh(save, (2, 2))
    for got in on_mesh(load, (2,)):
        for i, tensor in enumerate(got):
            assert torch.equal(tensor, VALUE + i)
    assert [e.name for e in checkpoint.list(tmp_path / "c")] == ["a", "b.0", "plain"]
    assert len(checkpoint.verify(tmp_path / "c")) == (format != "tessera")


def test_a_save_beside_the_program_holds_what_was_there_at_the_call(tmp_path):
    def body(mesh):
        weight = tessera.distribute_tensor(VALUE, mesh, "S(0)")
        handle = checkpoint.save_async({"w": weight, "step": 7}, tmp_path / "c")
        weight.fill_(math.nan)
        handle.wait()
        assert handle.done() and handle.path == str(tmp_path / "c")
        written, total = handle.progress()
        state = {"w": zeros(mesh, "R"), "step": 0}
        checkpoint.load(state, tmp_path / "c")
        with pytest.raises(ValueError, match="overwrite"):
            checkpoint.save_async({"w": weight}, tmp_path / "c")
        for step in (1, 2, 3):  # nobody waits: the next call does
            checkpoint.save_step_async({"w": weight, "step": step}, tmp_path, step, 2)
        last = {"w": zeros(mesh, "R"), "step": 0}
        checkpoint.load(last, tmp_path / "step_000000000003")
        return written, total, tessera.full_tensor(state["w"]), state["step"], last["step"]

    results = on_mesh(body, (4,))
    assert sum(written for written, *_ in results) == VALUE.numel() * 8
    for written, total, value, step, last in results:
        assert written == total and torch.equal(value, VALUE)
        assert (step, last) == (7, 3)
    assert checkpoint.latest(tmp_path) == str(tmp_path / "step_000000000003")
    assert not (tmp_path / "step_000000000001").exists()


def test_progress_is_told_on_each_rank(tmp_path):
    def body(mesh):
        seen = []
        state = {"w": tessera.distribute_tensor(VALUE, mesh, "S(0)")}
        told = lambda *numbers: seen.append(numbers)  # noqa: E731
        checkpoint.save(state, tmp_path / "c", progress=told)
        checkpoint.save_step(state, tmp_path, 1, progress=told)

        def fails(*_):
            if tessera.rank() == 1:
                raise ValueError("no more")
        with pytest.raises(ValueError, match="on rank 1: .*no more"):
            checkpoint.save(state, tmp_path / "d", progress=fails)
        with pytest.raises(TypeError, match="progress is of <class 'int'>"):
            checkpoint.save(state, tmp_path / "d", progress=3)
        return seen, tessera.to_local(state["w"]).nbytes

    for seen, held in on_mesh(body, (2,)):
        assert seen == [(held, held)] * 2
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("format", ["tessera", "dcp"])
def test_values_of_every_kind_come_back_into_the_same_dicts(tmp_path, format):
    saved = {"step": 2**62, "loss": 0.1, "done": True, "name": "adam 'w'\n\u00e9",
             "raw": b"\x00\xff", "none": None, "betas": (0.9, 0.99), "empty": {},
             "deep": {"list": [1, "a", [2.5, None]], 3: {"x": 4}},
             "groups": [{"lr": 0.5, "t": torch.ones(2)}, {"lr": 0.25}]}
    state = {"step": 0, "loss": 0.0, "done": False, "name": "", "raw": b"",
             "none": None, "betas": (0.0, 0.0), "empty": {},
             "deep": {"list": [], 3: {"x": 0}},
             "groups": [{"lr": 0.0, "t": torch.zeros(2)}, {"lr": 0.0}]}
    deep, group = state["deep"], state["groups"][0]

    def body():
        mine = copy.deepcopy(state) if tessera.rank() else state
        checkpoint.save(saved, tmp_path / "c", format=format)
        checkpoint.load(mine, tmp_path / "c")
        return mine

    for got in tessera.run_ranks(2, body, deadline=60):
        assert torch.equal(got["groups"][0].pop("t"), torch.ones(2))
    saved["groups"][0].pop("t")
    assert state == saved
    assert isinstance(state["betas"], tuple)
    assert state["deep"] is deep and state["groups"][0] is group


def test_what_cannot_be_kept_is_named(tmp_path):
    path = tmp_path / "c"
    for value, error, text in [
            ({"a": {"b": object()}}, TypeError, "'a.b' is of <class 'object'>"),
            ({"a": [1, {2}]}, TypeError, "'a.1' is of <class 'set'>"),
            ({"a": {1.5: 0}}, TypeError, "a key of 'a' is of <class 'float'>"),
            ({"a": {1: 0, "1": 0}}, ValueError, "two keys of 'a' read '1'"),
            ({"a": 2**70}, ValueError, "integers have 64 bits")]:
        with pytest.raises(error, match=text):
            checkpoint.save(value, path)
    with pytest.raises(ValueError, match="no format 'zip'.*safetensors"):
        checkpoint.save({"a": 1}, path, format="zip")
    assert not path.exists()


def test_options_of_load(tmp_path):
    checkpoint.save({"m": {"w": VALUE}, "n": 1}, tmp_path / "c")
    state = {"m": {"w": torch.zeros(10, 7)}, "z": 5}
    with pytest.raises(ValueError, match="lacks 'z'; the dict lacks 'n'"):
        checkpoint.load({"m": {"w": VALUE.clone()}, "z": 5}, tmp_path / "c")
    with pytest.raises(TypeError, match="is f32, and the checkpoint has f64"):
        checkpoint.load(state, tmp_path / "c", strict=False)
    checkpoint.load(state, tmp_path / "c", convert_dtype=True, only="m.*")
    assert torch.equal(state["m"]["w"], VALUE.float()) and state["z"] == 5
    with pytest.raises(ValueError, match="pass overwrite = true"):
        checkpoint.save({"n": 2}, tmp_path / "c")
    checkpoint.save({"n": 2}, tmp_path / "c", overwrite=True)
    state = {"n": 0}
    checkpoint.load(state, tmp_path / "c")
    assert state == {"n": 2}


def test_steps_are_kept_and_the_latest_is_found(tmp_path):
    assert checkpoint.latest(tmp_path) is None
    for step in (1, 2, 3):
        checkpoint.save_step({"n": step}, tmp_path, step, keep=2)
    state = {"n": 0}
    checkpoint.load(state, checkpoint.latest(tmp_path))
    assert state == {"n": 3}
    assert len([p for p in tmp_path.iterdir() if p.name.startswith("step_")]) == 2


def test_other_threads_of_python_run_while_files_are_written(tmp_path):
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.wait(0.001):
            ticks.append(1)

    clock = threading.Thread(target=tick)
    clock.start()
    try:
        big = torch.zeros(2**24)
        before = len(ticks)
        checkpoint.save({"big": big}, tmp_path / "c")
        during = len(ticks) - before
    finally:
        stop.set()
        clock.join()
    assert during > 5


# --- modules and optimizers

def train(module, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sharded(mesh, cut=True):
    module, x, y = models.make("mlp")
    tessera.distribute_module(module, mesh, models.cut if cut else None)
    return (module, tessera.distribute_tensor(x, mesh, "S(0)"),
            tessera.distribute_tensor(y, mesh, "S(0)"))


OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True),
    "fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "NAdam": lambda p: torch.optim.NAdam(p, 0.01),
    "no state": lambda p: torch.optim.SGD(p, 0.1),
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_goes_on_elsewhere(tmp_path, name, when):
    """Saved on 4 ranks, continued on 2 by another optimizer: as without a stop."""
    make_optimizer = OPTIMIZERS[name]
    plain, x, y = models.make("mlp")
    want = train(plain, make_optimizer(plain.parameters()), x, y, 6)

    def save(mesh):
        module, x, y = sharded(mesh)
        optimizer = make_optimizer(module.parameters())
        losses = train(module, optimizer, x, y, 3)
        checkpoint.save({"app": checkpoint.state_dict(module, optimizer), "step": 3},
                        tmp_path / "c")
        return losses

    def load(mesh):
        module, x, y = sharded(mesh, cut=False)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.zero_()
        optimizer = make_optimizer(module.parameters())
        optimizer.param_groups[0]["lr"] = 123.0
        if when == "after":  # it has stepped, so it has state
            train(module, optimizer, x, y, 2)
        state = {"app": checkpoint.state_dict(module, optimizer), "step": 0}
        checkpoint.load(state, tmp_path / "c")
        assert state["step"] == 3
        for parameter, fields in optimizer.state.items():
            for field, value in fields.items():
                assert tessera.is_dtensor(value) == (value.dim() > 0), field
        return train(module, optimizer, x, y, 3)

    first = on_mesh(save, (4,))
    for rest in on_mesh(load, (2,)):
        assert first[0] + rest == pytest.approx(want, rel=0, abs=1e-12)


def test_a_part_of_it_is_loaded_on_request(tmp_path):
    module, x, y = models.make("mlp")
    optimizer = torch.optim.AdamW(module.parameters(), 0.01)
    train(module, optimizer, x, y, 1)
    checkpoint.save({"app": checkpoint.state_dict(module, optimizer),
                     "random": checkpoint.random_state_dict()}, tmp_path / "c")
    other = torch.optim.AdamW(module.parameters(), 0.5)
    state = {"app": checkpoint.state_dict(module, other),
             "random": checkpoint.random_state_dict()}
    tessera.manual_seed(4)
    checkpoint.load(state, tmp_path / "c", only=["app.model.*"])
    assert not other.state and other.param_groups[0]["lr"] == 0.5
    assert tessera.random_state().seed == 4


def test_errors_of_optimizers(tmp_path):
    module, x, y = models.make("mlp")
    stranger = torch.optim.SGD([torch.zeros(2, requires_grad=True)], 0.1)
    with pytest.raises(ValueError, match="parameter 0 of group 0 .* no parameter of"):
        checkpoint.state_dict(module, stranger)
    one = torch.optim.SGD(module.parameters(), 0.1)
    checkpoint.save(checkpoint.state_dict(module, one), tmp_path / "c")
    fewer = torch.optim.SGD([module.scale], 0.1)
    with pytest.raises(ValueError, match="group 0 of the optimizer has the parameters"):
        checkpoint.load(checkpoint.state_dict(module, fewer), tmp_path / "c")

    class Extra(torch.nn.Linear):
        def get_extra_state(self):
            return {"a": 1}

    with pytest.raises(NotImplementedError, match="'_extra_state'"):
        checkpoint.state_dict(Extra(2, 2))


def test_random_numbers_go_on_where_they_were(tmp_path):
    def body(mesh):
        tessera.manual_seed(2**63 + 5)
        tessera.rand([4], mesh, "S(0)")
        with tessera.RandomStream("data"):
            tessera.rand([4], mesh, "S(0)")
        checkpoint.save({"random": checkpoint.random_state_dict()}, tmp_path / "c")
        want = tessera.random_state()
        tessera.manual_seed(3)
        checkpoint.load({"random": checkpoint.random_state_dict()}, tmp_path / "c")
        assert tessera.random_state() == want

    on_mesh(body, (2,))


# --- PyTorch's distributed checkpoint

def torch_state(module, optimizer):
    return {"model": module.state_dict(),
            "optimizer": get_optimizer_state_dict(module, optimizer)}


@pytest.mark.filterwarnings("ignore")
def test_what_pytorch_saved_is_loaded_into_shards(tmp_path):
    plain, x, y = models.make("mlp")
    optimizer = torch.optim.AdamW(plain.parameters(), 0.01)
    train(plain, optimizer, x, y, 2)
    dcp.save(torch_state(plain, optimizer), checkpoint_id=str(tmp_path / "c"))
    want = train(plain, optimizer, x, y, 3)

    def load(mesh):
        module, x, y = sharded(mesh)
        mine = torch.optim.AdamW(module.parameters(), 0.5)
        checkpoint.load(checkpoint.state_dict(module, mine), tmp_path / "c")
        return train(module, mine, x, y, 3)

    for got in on_mesh(load, (2,)):
        assert got == pytest.approx(want, rel=0, abs=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_what_we_saved_is_loaded_by_pytorch(tmp_path):
    def save(mesh):
        module, x, y = sharded(mesh)
        optimizer = torch.optim.AdamW(module.parameters(), 0.01)
        train(module, optimizer, x, y, 2)
        checkpoint.save(checkpoint.state_dict(module, optimizer), tmp_path / "c",
                        format="dcp")
        return train(module, optimizer, x, y, 3)

    want = on_mesh(save, (4,))[0]
    plain, x, y = models.make("mlp")
    optimizer = torch.optim.AdamW(plain.parameters(), 0.5)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.zero_()
    state = torch_state(plain, optimizer)
    dcp.load(state, checkpoint_id=str(tmp_path / "c"))
    set_optimizer_state_dict(plain, optimizer, state["optimizer"])
    assert train(plain, optimizer, x, y, 3) == pytest.approx(want, rel=0, abs=1e-12)


def test_names_are_those_of_pytorch():
    module, x, y = models.make("mlp")
    optimizer = torch.optim.AdamW(module.parameters(), 0.01)
    train(module, optimizer, x, y, 1)
    ours = checkpoint.state_dict(module, optimizer)
    theirs = torch_state(module, optimizer)
    for name, value in theirs["model"].items():
        assert torch.equal(ours["model"][name], value)
    assert ours["optimizer"]["state"].keys() == theirs["optimizer"]["state"].keys()
    assert ours["optimizer"]["param_groups"] == theirs["optimizer"]["param_groups"]
