"""Errors of tessera.checkpoint: on all ranks, with the rank, of the right type."""
import errno
import pathlib

import pytest
import tessera
import torch
import torch.distributed.checkpoint as dcp
from tessera import checkpoint


def on_ranks(body, ranks=3):
    return tessera.run_ranks(ranks, body, deadline=60)


def all_raise(kind, text, call):
    """Every rank raises the same error, and goes on afterwards."""
    def body():
        with pytest.raises(kind) as caught:
            call()
        assert text in str(caught.value), str(caught.value)
        assert type(caught.value) is kind, type(caught.value)
        tessera.init().communicator().barrier()
        return str(caught.value)

    texts = on_ranks(body)
    assert len(set(texts)) == 1, texts


def on_rank_1(wrong, right):
    return wrong if tessera.rank() == 1 else right



WRONG_STATES = {
    "a value": (TypeError, "'a.0' is of <class 'object'>", {"a": [object()]}),
    "a key": (TypeError, "a key of '' is of <class 'float'>", {1.5: 0}),
    "a large number": (ValueError, "integers have 64 bits", {"a": 2**80}),
    "two names": (ValueError, "two keys of '' read '1'", {1: 0, "1": 0}),
    "no dict": (TypeError, "the state is of <class 'list'>", [1]),
}


@pytest.mark.parametrize("name", WRONG_STATES)
def test_a_state_that_is_wrong_on_one_rank_is_an_error_on_all(tmp_path, name):
    kind, text, wrong = WRONG_STATES[name]
    path = tmp_path / "c"
    for call in (lambda: checkpoint.save(on_rank_1(wrong, {"a": [1]}), path),
                 lambda: checkpoint.save_step(on_rank_1(wrong, {"a": [1]}), path, 1),
                 lambda: checkpoint.load(on_rank_1(wrong, {"a": [1]}), path)):
        all_raise(kind, text, call)
        all_raise(kind, "on rank 1: ", call)
    assert not path.exists()


@pytest.mark.parametrize("kind, text, arguments", [
    (TypeError, "os.PathLike", {"path": 5}),
    (TypeError, "format is of <class 'int'>", {"format": 5}),
    (TypeError, "overwrite is of <class 'str'>", {"overwrite": "yes"}),
    (ValueError, "there is no format 'zip'", {"format": "zip"}),
])
def test_an_argument_that_is_wrong_on_one_rank_is_an_error_on_all(
        tmp_path, kind, text, arguments):
    right = {"path": tmp_path / "c", "format": "dcp", "overwrite": False}
    all_raise(kind, text, lambda: checkpoint.save(
        {"a": 1}, **on_rank_1({**right, **arguments}, right)))
    all_raise(ValueError, "steps are counted from 0; got -1",
              lambda: checkpoint.save_step({}, tmp_path, on_rank_1(-1, 1)))
    all_raise(ValueError, "keeps -2 steps",
              lambda: checkpoint.save_step({}, tmp_path, 1, on_rank_1(-2, 1)))
    assert not list(tmp_path.iterdir())


def test_a_path_is_bytes_that_the_system_takes(tmp_path):
    for name in ("/\udcff", "/a\0b"):
        all_raise(ValueError, "is not UTF-8, or has a NUL character",
                  lambda: checkpoint.save({"a": 1}, str(tmp_path) + name))
    checkpoint.save({"a": 1}, bytes(tmp_path / "b"))
    checkpoint.load({"a": 1}, tmp_path / "b")


def test_an_optimizer_that_differs_on_one_rank_is_an_error_on_all(tmp_path):
    def make(parameters):
        net = torch.nn.Linear(2, 3)
        chosen = [getattr(net, name) for name in parameters]
        return checkpoint.state_dict(net, torch.optim.SGD(chosen, lr=0.1))

    checkpoint.save(make(["weight", "bias"]), tmp_path / "c")
    all_raise(ValueError, "on rank 1: checkpoint.load: group 0 of the optimizer has",
              lambda: checkpoint.load(
                  make(on_rank_1(["weight"], ["weight", "bias"])), tmp_path / "c"))


def test_what_the_system_refuses_is_an_oserror(tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    all_raise(FileNotFoundError, "No such file or directory (ENOENT)",
              lambda: checkpoint.load({"a": 1}, tmp_path / "nowhere"))
    all_raise(NotADirectoryError, "(ENOTDIR)",
              lambda: checkpoint.save({"a": 1}, file / "c"))
    for call in (checkpoint.list, checkpoint.verify):
        with pytest.raises(FileNotFoundError, match="nowhere") as caught:
            call(tmp_path / "nowhere")
        assert caught.value.errno == errno.ENOENT


def test_what_was_asked_for_wrongly_is_a_valueerror(tmp_path):
    checkpoint.save({"a": 1}, tmp_path / "c")
    all_raise(ValueError, "is there already",
              lambda: checkpoint.save({"a": 1}, tmp_path / "c"))
    all_raise(ValueError, "names do not match; the checkpoint lacks 'b'",
              lambda: checkpoint.load({"a": 1, "b": 1}, tmp_path / "c"))
    all_raise(ValueError, "holds no checkpoint",
              lambda: checkpoint.load({"a": 1}, tmp_path))
    with pytest.raises(ValueError, match="holds no checkpoint"):
        checkpoint.list(tmp_path)


def test_what_is_not_read_is_a_notimplementederror(tmp_path):
    dcp.save({"device": torch.device("cpu")}, checkpoint_id=str(tmp_path / "c"),
             no_dist=True)
    all_raise(NotImplementedError, "an object of Python",
              lambda: checkpoint.load({"device": None}, tmp_path / "c"))


def test_damage_is_a_runtimeerror(tmp_path):
    checkpoint.save({"a": torch.arange(100.0)}, tmp_path / "c")
    data = next(pathlib.Path(tmp_path / "c").glob("*.bin"))
    content = bytearray(data.read_bytes())
    content[10] ^= 1
    data.write_bytes(content)
    all_raise(RuntimeError, data.name,
              lambda: checkpoint.load({"a": torch.zeros(100)}, tmp_path / "c"))
    with pytest.raises(RuntimeError, match=data.name):
        checkpoint.verify(tmp_path / "c")
