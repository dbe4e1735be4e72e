"""tessera.activation_checkpoint, and PyTorch's own checkpoint on sharded tensors."""
import pytest
import tessera
import torch
from torch.utils.checkpoint import checkpoint


def leaves(mesh):
    torch.manual_seed(0)
    x, w = torch.randn(6, 8, dtype=torch.float64), torch.randn(8, 8, dtype=torch.float64)
    return (tessera.distribute_tensor(x, mesh, "S(0)").requires_grad_(),
            tessera.distribute_tensor(w, mesh, "S(1)").requires_grad_())


def layer(x, w, scale=1.0):
    h = torch.nn.functional.dropout(torch.tanh(x @ w), 0.3)
    return torch.sin(tessera.redistribute(h, "S(1)")) * scale


def gradients(y, of, **options):
    return [tessera.full_tensor(g) for g in torch.autograd.grad(y.sum(), of, **options)]


def on_two_ranks(body):
    return tessera.run_ranks(
        2, lambda: body(tessera.init_device_mesh("cpu", (2,))))


@pytest.mark.parametrize("how", ["ours", "nested", "not kept", "theirs", "reentrant"])
def test_gradients_are_those_of_the_plain_run(how):
    def body(mesh):
        x, w = leaves(mesh)
        runs = {
            "plain": lambda: layer(x, w, 2.0),
            "ours": lambda: tessera.activation_checkpoint(layer, x, w, 2.0),
            "nested": lambda: tessera.activation_checkpoint(
                lambda a: tessera.activation_checkpoint(layer, a, w, 2.0), x),
            "not kept": lambda: tessera.activation_checkpoint(
                layer, x, w, 2.0, keep_moved=False),
            # PyTorch knows nothing of our random numbers: no dropout.
            "theirs": lambda: checkpoint(torch.tanh, x @ w, use_reentrant=False),
            "reentrant": lambda: checkpoint(torch.tanh, x @ w, use_reentrant=True),
        }
        if how in ("theirs", "reentrant"):
            runs["plain"] = lambda: torch.tanh(x @ w)

        def run(name):
            tessera.manual_seed(1)
            x.grad = w.grad = None
            y = runs[name]()
            y.sum().backward()
            return [tessera.full_tensor(t) for t in (y.detach(), x.grad, w.grad)]

        for got, want in zip(run(how), run("plain")):
            torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
        return True

    assert all(on_two_ranks(body))


def test_recomputation_communicates_nothing_that_is_kept():
    def body(mesh):
        x, w = leaves(mesh)
        counts = []
        for keep in (True, False):
            y = tessera.activation_checkpoint(layer, x, w, keep_moved=keep)
            with tessera.CommLog() as log:
                gradients(y, [x, w])
            counts.append(log.count)
        return counts

    kept, moved = on_two_ranks(body)[0]
    assert kept < moved


def test_several_results_second_derivatives_and_two_passes():
    def body(mesh):
        x, w = leaves(mesh)

        def two(a, b):
            return torch.sin(a @ b), torch.cos(a)

        def second(y, z):
            g, = torch.autograd.grad(y.sum() + z.sum(), [x], create_graph=True)
            return gradients(g * g, [x, w], retain_graph=True)

        want = second(*two(x, w))
        results = tessera.activation_checkpoint(two, x, w)
        assert isinstance(results, tuple)
        for _ in range(2):
            for got, expected in zip(second(*results), want):
                torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
        return True

    assert all(on_two_ranks(body))


def test_fn_ends_early_and_its_handlers_see_nothing():
    seen = []

    def fn(x):
        try:
            y = torch.sin(torch.sin(x))
        except Exception as error:  # pylint: disable=broad-except
            seen.append(error)
            raise
        seen.append("end")
        return y + 1

    x = torch.ones(3, requires_grad=True)
    tessera.activation_checkpoint(fn, x).sum().backward()
    assert seen == ["end"]


def test_errors_of_fn_and_of_what_it_returns():
    x = torch.ones(3, requires_grad=True)
    runs = []

    def fails(t):
        runs.append(1)
        if len(runs) == 2:
            raise KeyError("from fn")
        return torch.sin(t * 2)

    with pytest.raises(KeyError, match="from fn"):
        tessera.activation_checkpoint(fails, x).sum().backward()
    with pytest.raises(TypeError, match="a tuple or list of tensors"):
        tessera.activation_checkpoint(lambda t: 3, x)
    with pytest.raises(ValueError, match="its input 0 itself"):
        tessera.activation_checkpoint(lambda t: t, x)
