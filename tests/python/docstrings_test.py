"""Every public name has a docstring with an example, and the examples run."""
import doctest

import pytest
import tessera
import tessera.torch_compat
import torch


def run_examples(name, text):
    mesh = tessera.init_device_mesh("cpu", (1,))
    example = doctest.DocTestParser().get_doctest(
        text, {"tessera": tessera, "torch": torch, "mesh": mesh}, name, name, 0)
    assert example.examples, f"{name} has no example"
    out = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    result = runner.run(example, out=out.append)
    assert result.failed == 0, "".join(out)


@pytest.mark.parametrize("name", tessera.__all__)
def test_the_example_of(name):
    run_examples(name, getattr(tessera, name).__doc__ or "")


@pytest.mark.parametrize("name", tessera.checkpoint.__all__)
def test_the_example_of_checkpoint(name):
    run_examples(name, getattr(tessera.checkpoint, name).__doc__ or "")


@pytest.mark.parametrize("name", tessera.sharded_tensor.__all__)
def test_the_example_of_sharded_tensor(name):
    run_examples(name, getattr(tessera.sharded_tensor, name).__doc__ or "")


@pytest.mark.parametrize("name", sorted(
    set(tessera.torch_compat.__all__) - set(tessera.__all__)
    - {"Placement", "checkpoint", "implicit_replication"}))
def test_the_example_of_torch_compat(name):
    run_examples(name, getattr(tessera.torch_compat, name).__doc__ or "")


@pytest.mark.parametrize("module", [
    tessera, tessera.checkpoint, tessera.sharded_tensor, tessera.torch_compat])
def test_the_example_of_the_module(module):
    run_examples(module.__name__, module.__doc__)
