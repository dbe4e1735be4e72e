"""tessera.Ema, tessera.clip_grad_norm, and torch.amp.GradScaler on sharded gradients."""
import math

import pytest
import tessera
import torch


def parameter(gradient, mesh=None, placements=None):
    if mesh is not None:
        gradient = tessera.distribute_tensor(gradient, mesh, placements)
    p = torch.zeros_like(gradient).requires_grad_()
    p.grad = gradient
    return p


def test_averages_are_those_of_the_plain_module():
    def body():
        mesh = tessera.init_device_mesh("cpu", (2,))
        plain = torch.nn.Linear(4, 6, dtype=torch.float64)
        with torch.no_grad():  # equal on all ranks
            for p in plain.parameters():
                p.copy_(torch.arange(p.numel()).reshape(p.shape))
        cut = torch.nn.Linear(4, 6, dtype=torch.float64)
        cut.load_state_dict(plain.state_dict())
        late = tessera.Ema(cut)
        tessera.distribute_module(
            cut, mesh, lambda name, part, m: tessera.make_dtensor_(part.weight, m, "S(0)"))
        with pytest.raises(ValueError, match="'weight' lies elsewhere"):
            late.update()
        averages = [tessera.Ema(net, 0.9) for net in (plain, cut)]
        with tessera.CommLog() as log:
            for net, ema in zip((plain, cut), averages):
                for _ in range(3):
                    with torch.no_grad():
                        for p in net.parameters():
                            p.mul_(1.25)
                    ema.update()
        assert log.count == 0
        before = tessera.full_tensor(cut.weight.detach())
        with pytest.raises(KeyError), averages[1].swap():
            got = {n: tessera.full_tensor(p.detach()).clone()
                   for n, p in cut.named_parameters()}
            with pytest.raises(ValueError, match="holds the averages now"):
                averages[1].update()
            raise KeyError
        assert torch.equal(before, tessera.full_tensor(cut.weight.detach()))
        for name, want in averages[0].averages().items():
            torch.testing.assert_close(got[name], want, rtol=0, atol=1e-12)
        return True

    assert all(tessera.run_ranks(2, body))


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_norms_over_the_stages_of_a_pipeline(p):
    whole = [parameter(torch.arange(1.0, 9.0) + i) for i in range(2)]
    want = torch.nn.utils.clip_grad_norm_(whole, 0.5, p)

    def body():
        mesh = tessera.init_device_mesh("cpu", (2, 2), ("pp", "tp"))
        stage = mesh.coordinate[0]
        mine = parameter(torch.arange(1.0, 9.0) + stage, mesh["tp"], "S(0)")
        norm = tessera.clip_grad_norm(
            mine, 0.5, p, stages=mesh.communicator("pp"))
        torch.testing.assert_close(tessera.full_tensor(mine.grad), whole[stage].grad)
        return norm.item()

    norms = tessera.run_ranks(4, body)
    assert len(set(norms)) == 1
    assert norms[0] == pytest.approx(want.item(), rel=1e-6)


@pytest.mark.parametrize("wrong", [None, 0, 1])
def test_torchs_grad_scaler_on_two_meshes(wrong):
    def body():
        meshes = [tessera.init_device_mesh("cpu", (2, 2), ("dp", "tp")),
                  tessera.init_device_mesh("cpu", (4,))]
        gradients = [torch.arange(1.0, 9.0), torch.arange(2.0, 10.0)]
        if wrong is not None:
            gradients[wrong][7] = math.inf  # on the last rank's shard
        parameters = [parameter(gradients[0] * 1024, meshes[0], "R S(0)"),
                      parameter(gradients[1] * 1024, meshes[1], "S(0)")]
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        scaler.scale(torch.ones(()))
        optimizer = torch.optim.SGD(parameters, lr=1.0)
        scaler.step(optimizer)
        scaler.update()
        return (scaler.get_scale(),
                [tessera.full_tensor(p.detach()).tolist() for p in parameters])

    for scale, values in tessera.run_ranks(4, body):
        if wrong is None:
            assert scale == 1024
            assert values == [[-float(i) for i in range(1, 9)],
                              [-float(i) for i in range(2, 10)]]
        else:
            assert scale == 512
            assert values == [[0.0] * 8] * 2


def test_loss_scaler_skips_on_two_meshes_and_stages():
    def body():
        mesh = tessera.init_device_mesh("cpu", (2, 2), ("pp", "tp"))
        tp, line = mesh["tp"], tessera.init_device_mesh("cpu", (4,))
        scaler = tessera.LossScaler(
            initial=8.0, interval=2, stages=mesh.communicator("pp"))
        assert scaler.scale(torch.ones(())).item() == 8
        scales, stepped = [], []
        for wrong in (None, None, 0, None):
            gradients = [torch.arange(1.0, 9.0) * 8, torch.arange(2.0, 10.0) * 8]
            if wrong is not None and mesh.coordinate[0] == 1:
                gradients[wrong][7] = math.nan  # one stage has it, on one rank
            parameters = [parameter(gradients[0], tp, "S(0)"),
                          parameter(gradients[1], line, "S(0)")]
            optimizer = torch.optim.SGD(parameters, lr=1.0)
            stepped.append(scaler.step(optimizer))
            values = [tessera.full_tensor(p.detach()).tolist() for p in parameters]
            assert (values[1][0] != 0) == stepped[-1]
            if not scales:
                assert values == [[-float(i) for i in range(1, 9)],
                                  [-float(i) for i in range(2, 10)]]
            scaler.update()
            scales.append(scaler.state_dict()["scale"])
        other = tessera.LossScaler(interval=2)
        other.load_state_dict(scaler.state_dict())
        assert other.state_dict() == {"scale": 8.0, "good_steps": 1}
        return stepped, scales

    for stepped, scales in tessera.run_ranks(4, body):
        assert stepped == [True, True, False, True]
        assert scales == [8, 16, 8, 8]


@pytest.mark.parametrize("wrong, text", [
    ({"growth": 1.0}, "growth must be above 1"), ({"backoff": 1.0}, "backoff must be"),
    ({"interval": 0}, "interval must be"), ({"initial": 0.0}, "scale must be above zero")])
def test_loss_scaler_refuses_factors_that_cannot_work(wrong, text):
    with pytest.raises(ValueError, match=text):
        tessera.LossScaler(**wrong)


def test_ema_refuses_what_cannot_be_averaged():
    net = torch.nn.Linear(2, 2)
    for decay in (-0.1, 1.5):
        with pytest.raises(ValueError, match="decay must be between 0 and 1"):
            tessera.Ema(net, decay)
    with pytest.raises(ValueError, match="floating dtype"):
        tessera.Ema(net, dtype=torch.int64)


def test_clip_grad_norm_of_what_is_not_finite_changes_nothing():
    def body():
        mesh = tessera.init_device_mesh("cpu", (2,))
        gradient = torch.tensor([1.0, 2.0, 3.0, math.nan])  # on the last rank
        p = parameter(gradient, mesh, "S(0)")
        with pytest.raises(ValueError, match="is not finite"):
            tessera.clip_grad_norm(p, 1.0, error_if_nonfinite=True)
        return tessera.full_tensor(p.grad).tolist()[:3]

    assert tessera.run_ranks(2, body) == [[1.0, 2.0, 3.0]] * 2
