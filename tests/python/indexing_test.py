"""Indexing with lists and numpy arrays: what a program writes down is equal on all ranks."""
import types

import numpy
import pytest
import tessera
import torch


def on_ranks(body, n=3):
    return tessera.run_ranks(n, body, deadline=30)


def value():
    """[7, 4]: the ranks hold 3, 3 and 1 rows."""
    return torch.arange(28.0).reshape(7, 4) * 1.5 + 1


def sharded(placements, shape=None, requires_grad=False):
    n = tessera.world_size()
    mesh = tessera.init_device_mesh("cpu", shape or (n,))
    return tessera.distribute_tensor(
        value().requires_grad_(requires_grad), mesh, placements)


def pair(placements, shape=None, requires_grad=False):
    plain = value().requires_grad_(requires_grad)
    return plain, sharded(placements, shape, requires_grad)


MASK = [True, False, True, True, False, False, True]
INDICES = {
    "a list": [0, 2],
    "counted from the end": [-1, 0, -7],
    "repeated": [2, 2, 5],
    "empty": [],
    "of a column": (slice(None), [0, 2]),
    "of two dims": ([0, 6, 3], [1, 3, 0]),
    "that broadcast": ([[0], [6]], [1, 2]),
    "nested": ([[0, 1], [5, 6]],),
    "a slice before": (slice(1, 6, 2), [3, 0]),
    "None and a list": (None, [4, 1]),
    "a list and None": ([4, 1], None, slice(2, 4)),
    "Ellipsis": (..., [1, 1, 3]),
    "an int beside": (4, [0, 3]),
    "a list beside an int": ([0, 3, 6], 1),
    "a tuple in a tuple": ((0, 2), slice(None)),
    "range": range(2, 7, 3),
    "booleans": MASK,
    "booleans of columns": (slice(None), [False, True, False, True]),
    "no boolean": [False] * 7,
    "booleans of both": (MASK, [0, 1, 2, 3]),
    "a numpy array": numpy.array([0, 2]),
    "a numpy array of int32": numpy.array([6, 1, 1], dtype=numpy.int32),
    "numpy booleans": numpy.array(MASK),
    "a numpy matrix": (numpy.array([[0, 3], [6, 2]]), 2),
    "numpy beside a slice": (slice(2, None), numpy.array([3, 0])),
    "a numpy number": (numpy.int64(3), [1, 2]),
    "a tensor without dims": (torch.tensor(5), [1, 2]),
    "such tensors in a list": ([torch.tensor(5), torch.tensor(0)],),
}
LAYOUTS = [("S(0)", None), ("S(1)", None), ("R", None), ("P(sum)", None),
           ("RS(0,[0,5,2])", None)]


@pytest.mark.parametrize("placements,shape", LAYOUTS)
@pytest.mark.parametrize("name", INDICES)
def test_reads_what_plain_reads(name, placements, shape):
    index = INDICES[name]

    def body():
        plain, x = pair("R" if placements == "P(sum)" else placements, shape, True)
        y = tessera.redistribute(x, placements)
        wanted, found = plain[index], y[index]
        assert tessera.is_dtensor(found)
        assert found.shape == wanted.shape
        assert torch.equal(tessera.full_tensor(found), wanted)
        weights = torch.arange(1.0, wanted.numel() + 1).reshape(wanted.shape)
        (wanted * weights).sum().backward()
        (tessera.full_tensor(found) * weights).sum().backward()
        assert torch.equal(tessera.full_tensor(x.grad), plain.grad)

    on_ranks(body)


@pytest.mark.parametrize("placements,shape", LAYOUTS)
@pytest.mark.parametrize("name", [n for n in INDICES if n not in ("repeated",)])
def test_writes_what_plain_writes(name, placements, shape):
    index = INDICES[name]

    def body():
        plain, x = pair("R" if placements == "P(sum)" else placements, shape)
        x = tessera.redistribute(x, placements)
        plain[index] = 7.0
        x[index] = 7.0
        assert torch.equal(tessera.full_tensor(x), plain)
        rows = plain[index] * 0 + torch.arange(float(plain[index].numel())).reshape(
            plain[index].shape)
        plain[index] = rows
        x[index] = tessera.distribute_tensor(rows, tessera.device_mesh(x))
        assert torch.equal(tessera.full_tensor(x), plain)
        assert str(tessera.placements(x)) == f"[{placements}]"

    on_ranks(body)


@pytest.mark.parametrize("placements", ["S(0) S(1)", "S(0) S(0)", "R S(0)", "S(1) R"])
def test_meshes_of_two_dims(placements):
    def body():
        plain, x = pair(placements, (2, 2), True)
        for index in ([6, 0], MASK, (slice(1, None), [0, 3]), ([0, 5], [3, 1])):
            assert torch.equal(tessera.full_tensor(x[index]), plain[index])
        (plain[[6, 0, 6]] ** 2).sum().backward()
        (x[[6, 0, 6]] ** 2).sum().backward()
        assert torch.equal(tessera.full_tensor(x.grad), plain.grad)
        x, plain = x.detach().clone(), plain.detach().clone()
        x[[1, 3], 1:] = plain[[1, 3], 1:] = -2.0
        assert torch.equal(tessera.full_tensor(x), plain)

    on_ranks(body, 4)


def test_gradients_of_a_written_tensor_and_of_what_was_written():
    def body():
        plain, x = pair("S(0)", None, True)
        rows = torch.arange(8.0).reshape(2, 4).requires_grad_()
        mine = tessera.distribute_tensor(
            rows.detach().requires_grad_(), tessera.device_mesh(x), "S(1)")
        for source, added in ((plain, rows), (x, mine)):
            y = source * 1
            y[[0, 6]] = added
            y[:, [1]] = 3.0
            (y * y).sum().backward()
        assert torch.equal(tessera.full_tensor(x.grad), plain.grad)
        assert torch.equal(tessera.full_tensor(mine.grad), rows.grad)

    on_ranks(body)


def test_ranks_outside_the_mesh_know_the_shapes():
    def body():
        mesh = tessera.DeviceMesh("cpu", [0, 2])
        x = tessera.distribute_tensor(value(), mesh, "S(0)")
        shapes = []
        for name, index in INDICES.items():
            found = x[index]
            assert found.shape == value()[index].shape, name
            shapes.append((name, list(found.shape), str(tessera.spec(found))))
        x[[0, 2]] = 1.0
        x[MASK] = 2.0
        return shapes

    first, outside, last = on_ranks(body)
    assert first == outside == last


def test_a_tensor_of_the_program_stays_an_error():
    def body():
        x, i = sharded("S(0)"), torch.tensor([0, 2])
        for index in (i, (slice(None), i), (i, [0, 2]), ([0, 2], i), [i],
                      (MASK, i[:1])):
            with pytest.raises(ValueError, match="plain and sharded"):
                x[index]
            with pytest.raises(ValueError, match="plain and sharded"):
                x[index] = 1.0
        with pytest.raises(ValueError, match="plain and sharded"):
            x[[0, 2]] = torch.ones(2, 4)
        with tessera.ImplicitReplication():
            assert torch.equal(tessera.full_tensor(x[i]), value()[i])
        mine = tessera.distribute_tensor(i, tessera.device_mesh(x))
        assert torch.equal(tessera.full_tensor(x[mine, [1, 3]]), value()[i, [1, 3]])
        # What is held for a list is held for no longer.
        with pytest.raises(ValueError, match="plain and sharded"):
            x + torch.ones(4)

    on_ranks(body)


def test_wrong_lists_are_the_errors_of_plain_tensors():
    def body():
        plain, x = pair("S(0)")
        i = torch.tensor([0, 2])
        for index in ([9], ([0], [0], [0]), ["a"], [True] * 6, ([i, [0, 2]],)):
            kinds = []
            for t in (plain, x):
                with pytest.raises(Exception) as caught:
                    t[index]
                kinds.append(type(caught.value))
            assert kinds[0] is kinds[1], (index, kinds)
        loop = [0]
        loop.append(loop)
        with pytest.raises(Exception):
            x[loop]

    on_ranks(body)


class Logged(torch.Tensor):
    """Notes which functions of torch it is given to."""
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Logged.calls.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Own(torch.Tensor):
    """Has an indexing of its own."""

    def __getitem__(self, index):
        return "mine"


def test_plain_tensors_and_subclasses_are_indexed_as_before():
    x = value()
    assert torch.equal(x[[0, 2]], x.index_select(0, torch.tensor([0, 2])))
    x[[0, 2], 1] = 5.0
    assert x[0, 1] == x[2, 1] == 5
    with pytest.raises(TypeError, match="delet"):
        del x[0]
    with pytest.raises(IndexError):
        x[[9]]
    assert x.as_subclass(Own)[[0]] == "mine"
    Logged.calls.clear()
    logged = x.as_subclass(Logged)
    assert type(logged[[0, 2]]) is Logged
    logged[[0]] = 1.0
    assert torch.Tensor.__getitem__ in Logged.calls
    assert torch.Tensor.__setitem__ in Logged.calls
    assert torch.nn.Parameter(x)[[0, 2]].requires_grad
    assert torch.compile(lambda t: t[[0, 2]] * 2, backend="eager")(x).shape == (2, 4)


def test_sharded_subclasses_are_asked_first():
    def body():
        x = sharded("S(0)").as_subclass(Logged)
        Logged.calls.clear()
        assert torch.equal(tessera.full_tensor(x[[0, 2]].as_subclass(torch.Tensor)),
                           value()[[0, 2]])
        assert torch.Tensor.__getitem__ in Logged.calls
        assert sharded("S(0)").as_subclass(Own)[[0]] == "mine"
        parameter = torch.nn.Parameter(sharded("S(0)"))
        assert torch.equal(tessera.full_tensor(parameter[[6]]), value()[[6]])

    on_ranks(body, 1)


def test_indexing_a_plain_tensor_costs_what_it_did():
    """A function of C, called without a look at the class: it asks for one bit."""
    for kind in (torch.Tensor, torch.nn.Parameter):
        for name in ("__getitem__", "__setitem__", "__delitem__"):
            assert isinstance(getattr(kind, name), types.WrapperDescriptorType)
