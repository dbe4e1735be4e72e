"""Methods of torch.Tensor on sharded tensors: those that work, those that refuse."""
import copy
import io
import pickle

import numpy
import pytest
import tessera
import torch


def on_ranks(body, n=2):
    return tessera.run_ranks(n, body, deadline=30)


def sharded(placements="S(0)", requires_grad=False):
    mesh = tessera.init_device_mesh("cpu", (tessera.world_size(),), ["tp"])
    value = torch.arange(12.0).reshape(6, 2).requires_grad_(requires_grad)
    return tessera.distribute_tensor(value, mesh, placements)


def test_repr_shows_the_spec_and_the_shard():
    texts = on_ranks(lambda: (repr(sharded()), str(sharded()), f"{sharded()}"))
    assert all(text == texts[1][0] for text in texts[1])
    assert texts[1][0].startswith(
        "f32[6, 2] S(0) @ mesh(tp=2)\nrank 1 holds [3:6, 0:2]")
    assert " 6   7" in texts[1][0]


def test_repr_tells_of_gradients():
    def body():
        x = sharded(requires_grad=True)
        return repr(x), repr(x * 2), repr(torch.nn.Parameter(sharded()))

    leaf, result, parameter = on_ranks(body)[0]
    assert leaf.endswith("requires_grad=True")
    assert result.endswith("grad_fn=MulBackward0")
    assert parameter.startswith("Parameter containing:\nf32[6, 2] S(0)")


def test_plain_tensors_print_and_copy_as_before():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    y = copy.deepcopy(x)
    assert y.requires_grad and y.data_ptr() != x.data_ptr()
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(x * 2)


def test_deepcopy_keeps_layout_gradient_and_class():
    def body():
        leaf = sharded(requires_grad=True)
        (leaf * leaf).sum().backward()
        leaf.note = ["mine"]
        parameter = torch.nn.Parameter(sharded(), requires_grad=False)
        buffer = torch.nn.Buffer(sharded())
        for old in (leaf, parameter, buffer):
            new = copy.deepcopy(old)
            assert type(new) is type(old)
            assert new.requires_grad == old.requires_grad and new.is_leaf
            assert str(tessera.spec(new)) == str(tessera.spec(old))
            assert torch.equal(tessera.full_tensor(new), tessera.full_tensor(old))
            with torch.no_grad():
                new.add_(1)
            assert not torch.equal(tessera.to_local(new), tessera.to_local(old))
        new = copy.deepcopy(leaf)
        assert torch.equal(tessera.full_tensor(new.grad),
                           tessera.full_tensor(leaf.grad))
        assert new.note == ["mine"] and new.note is not leaf.note
        assert isinstance(copy.deepcopy(buffer), torch.nn.Buffer)
        pair = copy.deepcopy([leaf, leaf])
        assert pair[0] is pair[1]

    on_ranks(body)


def test_deepcopy_of_what_is_no_leaf_is_refused():
    def body():
        with pytest.raises(RuntimeError, match="graph leaves"):
            copy.deepcopy(sharded(requires_grad=True) * 2)

    on_ranks(body)


def module_of(x):
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(x.detach())
    return module


def stepped(module):
    optimizer = torch.optim.SGD(module.parameters(), 0.0, momentum=0.9)
    module.weight.grad = torch.zeros_like(module.weight)
    optimizer.step()
    return optimizer


REFUSED = {
    "pickle": lambda x: pickle.dumps(x),
    "pickle of a parameter": lambda x: pickle.dumps(torch.nn.Parameter(x)),
    "torch.save": lambda x: torch.save({"x": x}, io.BytesIO()),
    "torch.save of a module": lambda x: torch.save(
        module_of(x).state_dict(), io.BytesIO()),
    "torch.save of an optimizer": lambda x: torch.save(
        stepped(module_of(x)).state_dict(), io.BytesIO()),
    "numpy()": lambda x: x.numpy(),
    "numpy(force=True)": lambda x: x.numpy(force=True),
    "numpy.asarray": lambda x: numpy.asarray(x),
    "numpy function": lambda x: numpy.sin(x),
    "DLPack": lambda x: x.__dlpack__(),
    "to_dlpack": lambda x: torch.utils.dlpack.to_dlpack(x),
    "numpy.from_dlpack": lambda x: numpy.from_dlpack(x),
    "data_ptr": lambda x: x.data_ptr(),
    "untyped_storage": lambda x: x.untyped_storage(),
    "tolist": lambda x: x.tolist(),
    "share_memory_": lambda x: x.share_memory_(),
}


@pytest.mark.parametrize("placements", ["S(0)", "R", "P(sum)"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_data_pointer_says_what_to_use(name, placements):
    def body():
        x = sharded("S(0)")
        x = tessera.redistribute(x, placements)
        with pytest.raises(Exception) as caught:
            REFUSED[name](x)
        text = str(caught.value)
        assert "to_local" in text and "full_tensor" in text, text
        assert "tessera::checkpoint::save to save it" in text, text
        assert "in Python tessera.checkpoint.save" in text, text
        # It is as good as before.
        assert (x * 2).sum().item() == 132

    on_ranks(body, 2)


@pytest.mark.parametrize("placements", ["R", "P(sum)", "P(max)", "P(avg)"])
def test_numbers_of_a_scalar(placements):
    def body():
        mesh = tessera.init_device_mesh("cpu", (3,))
        x = tessera.redistribute(
            tessera.distribute_tensor(torch.tensor(2.5), mesh), placements)
        return x.item(), float(x), int(x), bool(x), f"{x:.2f}", x.__index__ is None

    assert on_ranks(body, 3) == [(2.5, 2.5, 2, True, "2.50", False)] * 3


def test_item_of_many_elements_is_refused():
    def body():
        with pytest.raises(RuntimeError, match="[Ss]calar|converted"):
            sharded().item()

    on_ranks(body)


def test_data_and_grad_can_be_assigned():
    def body():
        x = torch.nn.Parameter(sharded())
        x.data = x.data * 3
        x.grad = torch.ones_like(x)
        torch.optim.SGD([x], 1.0).step()
        return tessera.full_tensor(x).sum().item(), str(tessera.placements(x))

    assert on_ranks(body) == [(66.0 * 3 - 12, "[S(0)]")] * 2
