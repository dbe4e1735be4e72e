"""torch.nn and torch.optim on sharded parameters, as on plain ones."""
import copy

import models
import pytest
import tessera
import torch
from torch import optim

OPTIMIZERS = {
    "SGD": lambda p, **k: optim.SGD(p, 0.1, momentum=0.9, **k),
    "Adam": lambda p, **k: optim.Adam(p, 0.01, **k),
    "AdamW": lambda p, **k: optim.AdamW(p, 0.01, amsgrad=True, **k),
    "Adagrad": lambda p, **k: optim.Adagrad(p, 0.01, **k),
}
OTHERS = {
    "Adadelta": lambda p: optim.Adadelta(p),
    "Adafactor": lambda p: optim.Adafactor(p),
    "Adamax": lambda p: optim.Adamax(p),
    "ASGD": lambda p: optim.ASGD(p),
    "NAdam": lambda p: optim.NAdam(p),
    "RAdam": lambda p: optim.RAdam(p),
    "RMSprop": lambda p: optim.RMSprop(p, centered=True),
    "Rprop": lambda p: optim.Rprop(p),
}


def losses(module, x, y, optimizer, steps=4):
    values = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values


def on_mesh():
    module, x, y = models.make("mlp")
    mesh = tessera.init_device_mesh("cpu", (2,), ["tp"])
    tessera.distribute_module(module, mesh, models.cut)
    return (module, tessera.distribute_tensor(x, mesh, "S(0)"),
            tessera.distribute_tensor(y, mesh, "S(0)"))


def compare(make):
    module, x, y = models.make("mlp")
    want = losses(module, x, y, make(module.parameters()))

    def body():
        net, mine, target = on_mesh()
        return losses(net, mine, target, make(net.parameters()))

    for got in tessera.run_ranks(2, body, deadline=60):
        assert got == pytest.approx(want, rel=0, abs=1e-12)


@pytest.mark.parametrize("form", ["for each", "foreach", "fused"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_forms_of_an_optimizer_step_as_on_plain_tensors(name, form):
    flags = {} if form == "for each" else {form: True}
    compare(lambda parameters: OPTIMIZERS[name](parameters, **flags))


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW])
def test_a_learning_rate_may_be_a_tensor_of_one_element(kind, shape):
    rate = torch.full(shape, 0.01)
    compare(lambda parameters: kind(parameters, lr=rate, fused=True))


def test_a_list_beside_more_numbers_stays_an_error():
    def body():
        mesh = tessera.init_device_mesh("cpu", (2,))
        x = tessera.distribute_tensor(torch.ones(4, 2), mesh, "S(0)")
        for plain in (torch.ones(2), torch.ones(4, 2)):
            with pytest.raises(ValueError, match="plain and sharded"):
                torch._foreach_mul_([x], [plain])
        with pytest.raises(ValueError, match="plain and sharded"):
            torch._foreach_mul_([x], [torch.ones(1)])
        with pytest.raises(ValueError, match="plain and sharded"):
            x + torch.ones(1)

    tessera.run_ranks(2, body, deadline=60)


@pytest.mark.parametrize("name", OTHERS)
def test_other_optimizers_step_as_on_plain_tensors(name):
    compare(OTHERS[name])


def test_lbfgs_steps_as_on_plain_tensors():
    def run(module, x, y):
        optimizer, values = optim.LBFGS(module.parameters(), 0.1, max_iter=4), []

        def closure():
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(module(x), y)
            loss.backward()
            values.append(loss.item())
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return values

    want = run(*models.make("mlp"))
    for got in tessera.run_ranks(2, lambda: run(*on_mesh()), deadline=60):
        assert got == pytest.approx(want, rel=0, abs=1e-11)


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("foreach", [False, True])
def test_clip_grad_norm(norm, foreach):
    def run(module, x, y):
        torch.nn.functional.mse_loss(module(x), y).backward()
        total = torch.nn.utils.clip_grad_norm_(
            module.parameters(), 0.1, norm_type=norm, foreach=foreach)
        after = [p.grad for p in module.parameters()]
        if tessera.is_dtensor(after[0]):
            after = [tessera.full_tensor(g) for g in after]
        return total.item(), after

    total, want = run(*models.make("mlp"))
    for got_total, got in tessera.run_ranks(2, lambda: run(*on_mesh()), deadline=60):
        assert got_total == pytest.approx(total, rel=1e-12)
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def layouts(module):
    return {name: (type(p), p.dtype, p.requires_grad, str(tessera.placements(p)))
            for name, p in module.named_parameters()}


def test_a_module_is_copied_and_converted():
    def body():
        module, x, _ = on_mesh()
        module.scale.requires_grad_(False)
        twin = copy.deepcopy(module)
        assert layouts(twin) == layouts(module)
        assert torch.equal(tessera.full_tensor(twin(x)), tessera.full_tensor(module(x)))
        with torch.no_grad():
            twin.up.weight.zero_()
        assert tessera.full_tensor(module.up.weight).abs().sum() > 0
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            twin.to(dtype)
            assert twin.up.weight.dtype == dtype
            assert tessera.placements(twin.up.weight) == [tessera.Shard(0)]
            assert twin(x.to(dtype)).dtype == dtype

    tessera.run_ranks(2, body, deadline=60)


@pytest.mark.parametrize("assign", [False, True])
def test_state_dicts_go_from_module_to_module(assign):
    def body():
        module, x, _ = on_mesh()
        other = copy.deepcopy(module)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        state = copy.deepcopy(module.state_dict())
        assert all(tessera.is_dtensor(value) for value in state.values())
        other.load_state_dict(state, assign=assign)
        assert layouts(other) == layouts(module)
        assert torch.equal(tessera.full_tensor(other(x)),
                           tessera.full_tensor(module(x)))

    tessera.run_ranks(2, body, deadline=60)


def test_a_plain_state_dict_is_cut_while_it_is_loaded():
    def body():
        plain, _, _ = models.make("mlp")
        module, x, _ = on_mesh()
        with torch.no_grad():
            module.up.weight.zero_()
        module.load_state_dict(plain.state_dict())
        assert torch.equal(tessera.full_tensor(module.up.weight), plain.up.weight)
        assert tessera.placements(module.up.weight) == [tessera.Shard(0)]

    tessera.run_ranks(2, body, deadline=60)


def test_an_optimizer_continues_from_its_state():
    def body():
        module, x, y = on_mesh()
        optimizer = optim.Adam(module.parameters(), 0.01)
        losses(module, x, y, optimizer, 2)
        other = copy.deepcopy(module)
        again = optim.Adam(other.parameters(), 0.01)
        again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        average = again.state[other.up.weight]["exp_avg"]
        assert tessera.placements(average) == [tessera.Shard(0)]
        assert losses(other, x, y, again, 3) == losses(module, x, y, optimizer, 3)

    tessera.run_ranks(2, body, deadline=60)


def test_an_optimizer_that_ran_before_its_parameters_were_cut():
    plain, x, y = models.make("mlp")
    optimizer = optim.Adam(plain.parameters(), 0.01)
    want = losses(plain, x, y, optimizer, 4)

    def body():
        module, x, y = models.make("mlp")
        mine = optim.Adam(module.parameters(), 0.01)
        first = losses(module, x, y, mine, 2)
        mesh = tessera.init_device_mesh("cpu", (2,), ["tp"])
        tessera.distribute_module(module, mesh, models.cut)
        tessera.distribute_optimizer(mine)
        rest = losses(module, tessera.distribute_tensor(x, mesh, "S(0)"),
                      tessera.distribute_tensor(y, mesh, "S(0)"), mine, 2)
        return first + rest

    for got in tessera.run_ranks(2, body, deadline=60):
        assert got == pytest.approx(want, rel=0, abs=1e-12)


def test_activation_checkpoints_run_forward_again():
    from torch.utils.checkpoint import checkpoint

    def body():
        module, x, y = on_mesh()
        module(x).sum().backward()
        want = tessera.full_tensor(module.up.weight.grad).clone()
        module.zero_grad()
        checkpoint(module, x, use_reentrant=False).sum().backward()
        torch.testing.assert_close(tessera.full_tensor(module.up.weight.grad), want)

    tessera.run_ranks(2, body, deadline=60)
