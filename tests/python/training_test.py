"""Modules trained on ranks that are threads have the losses of the plain run."""
import models
import pytest
import tessera


@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("kind", ["mlp", "transformer"])
def test_losses_are_those_of_the_plain_run(kind, shape):
    want = models.train_plain(kind)
    names = ["dp", "tp"][-len(shape):]
    runs = tessera.run_ranks(4, lambda: models.train_on(
        kind, tessera.init_device_mesh("cpu", shape, names)))
    assert want[-1] < want[0]
    for got in runs:
        assert got == pytest.approx(want, rel=0, abs=1e-10)


def test_a_layer_that_is_cut_stays_cut():
    def body():
        mesh = tessera.init_device_mesh("cpu", (4,))
        module, x, _ = models.make("mlp")
        tessera.distribute_module(module, mesh, models.cut)
        inner = module.up(tessera.distribute_tensor(x, mesh))
        inner.sum().backward()
        return (tessera.placements(inner), tessera.placements(module.up.weight.grad))

    assert tessera.run_ranks(4, body)[0] == ([tessera.Shard(1)], [tessera.Shard(0)])


def test_functions_on_inputs_and_outputs_are_applied():
    def body():
        mesh = tessera.init_device_mesh("cpu", (2,))
        module, x, _ = models.make("mlp")
        want = module(x)
        tessera.distribute_module(
            module, mesh, models.cut,
            lambda part, args, m: tuple(tessera.distribute_tensor(a, m) for a in args),
            lambda part, result, m: tessera.full_tensor(result))
        got = module(x)
        assert not tessera.is_dtensor(got)
        return (got - want).abs().max().item()

    assert max(tessera.run_ranks(2, body)) < 1e-12
