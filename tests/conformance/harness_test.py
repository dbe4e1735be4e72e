"""The harness notices what it is there to notice."""
import json
import os
import pathlib
import signal
import time

import pytest
import torch

import combinations
import entries
import run
from backends import DTensorBackend, addend_of
from cases import Case, parse_case
from comparison import Outcome, differences, is_rounding
from entry_process import run_entries
from entry_run import Plan


class Broken:
    """An entry whose results on sharded tensors are spoiled."""

    def __init__(self, op, spoil) -> None:
        self.op, self.spoil = op, spoil

    def __getattr__(self, name):
        return getattr(self.op, name)

    def __call__(self, *args, **kwargs):
        first = args[0]
        result = self.op(*args, **kwargs)
        return result if type(first) is torch.Tensor else self.spoil(result)


def results_of(spoil, tmp_path: pathlib.Path, limit: float = 60):
    """Runs torch.exp on DTensor with results that `spoil` has had."""
    found = []
    op = Broken(entries.all_entries()["exp"], spoil)
    run_entries({"exp": op}, DTensorBackend(), Plan(samples=1, least=3, each=1), limit,
                1, tmp_path, found.append)
    return found[0]


def test_sound_results_pass(tmp_path) -> None:
    result = results_of(lambda r: r, tmp_path)
    assert result.status() == "pass" and result.passed == result.plan["combinations"]


@pytest.mark.parametrize("spoil, status", [
    (lambda r: r + 1, "wrong"),
    (lambda r: r.double(), "wrong"),
    (lambda r: r.unsqueeze(0), "wrong"),
    (lambda r: r.detach(), "wrong"),
    (lambda r: r + 0 * r.detach() + (r - r.detach()), "wrong"),  # twice the gradient
    (lambda r: torch.missing_name, "error"),
    (lambda r: os.kill(os.getpid(), signal.SIGSEGV), "crash"),
    (lambda r: os._exit(3), "error"),
])
def test_spoiled_results_are_noticed(spoil, status, tmp_path) -> None:
    assert results_of(spoil, tmp_path).status() == status


def test_a_hang_is_ended(tmp_path) -> None:
    begun = time.monotonic()
    result = results_of(lambda r: time.sleep(1000), tmp_path, limit=3)
    assert result.status() == "hang" and time.monotonic() - begun < 60
    assert "most recent call first" in result.failures[0]["text"]


def test_other_cases_run_behind_a_crash(tmp_path) -> None:
    marker = tmp_path / "marker"

    def crash_once(result):
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return result
        os.kill(os.getpid(), signal.SIGSEGV)

    result = results_of(crash_once, tmp_path)
    assert [f["kind"] for f in result.failures] == ["crash"]
    assert parse_case(result.failures[0]["case"]).entry == "exp"
    assert result.passed == result.plan["combinations"] - 1


@pytest.mark.parametrize(
    "text", ["add#3@2x2:S(0)R;RP", "eye#0@3:", "a.b#1@2x2:SS(1,2)S(1)"])
def test_cases_are_read_as_written(text) -> None:
    assert str(parse_case(text)) == text


@pytest.mark.parametrize("text", ["add", "add#0@5:R", "add#0@2x2:R", "add#0@3:Q"])
def test_what_is_no_case_is_refused(text) -> None:
    with pytest.raises(ValueError, match="not "):
        parse_case(text)


def test_combinations_are_many_and_different() -> None:
    op = entries.all_entries()["mm"]
    samples = entries.all_samples("mm", op, 0)
    made = combinations.cases_of(
        "mm", samples, list(range(len(samples))), entries.tensors_of, 64, 2, 0)
    assert len(made) == len(set(made)) >= 64
    again = combinations.cases_of(
        "mm", samples, list(range(len(samples))), entries.tensors_of, 64, 2, 0)
    assert made == again
    assert {c.mesh for c in made} == {"3", "4", "2x2"}
    assert any("SS" in str(c) for c in made) and any("P" in str(c) for c in made)


def test_uneven_shards_are_recognised() -> None:
    tensor = torch.zeros(6, 5)
    for text, uneven in (("x#0@3:S(0)", False), ("x#0@4:S(0)", True),
                         ("x#0@2x2:S(0)S(0)", True), ("x#0@2x2:S(0)S(1)", True),
                         ("x#0@2x2:S(0)P", False)):
        assert combinations.is_uneven(parse_case(text), [tensor]) is uneven, text


def test_addends_add_up_exactly() -> None:
    values = torch.tensor([1.1, -3e38, float("inf"), float("-inf"), 1e-40, 0.0])
    for size in (2, 3, 4):
        assert torch.equal(sum(addend_of(values, r) for r in range(size)), values)
    assert addend_of(torch.tensor([float("nan")]), 0).isnan().all()


def test_rounding_is_told_from_errors() -> None:
    truth = Outcome([torch.tensor([1.0, 2.0], dtype=torch.float64)], [], [False], [])
    plain = Outcome([torch.tensor([1.001, 2.0])], [], [False], [])
    near = Outcome([torch.tensor([0.999, 2.004])], [], [False], [])
    far = Outcome([torch.tensor([1.0, 2.1])], [], [False], [])
    assert differences(near, plain, 1e-6, 1e-6)
    assert is_rounding(near, plain, truth, 1e-6, 1e-6)
    assert not is_rounding(far, plain, truth, 1e-6, 1e-6)


def test_samples_are_chosen_for_variety() -> None:
    op = entries.all_entries()["nn.functional.max_pool2d"]
    samples = entries.all_samples("nn.functional.max_pool2d", op, 0)
    chosen = entries.chosen_samples(samples, 20)
    assert len(set(chosen)) == 20 < len(samples)
    shapes = {s.input.shape for s in samples}
    assert {samples[i].input.shape for i in chosen} == shapes


def test_shards_of_the_entries_make_the_whole() -> None:
    whole = run.chosen_entries(run.arguments(["--quick"]))
    parts = [run.chosen_entries(run.arguments(["--quick", "--shard", f"{i}/3"]))
             for i in (1, 2, 3)]
    assert sorted(n for p in parts for n in p) == sorted(whole)


def test_lists_name_reasons() -> None:
    path = pathlib.Path(entries.__file__).with_name("entries.json")
    for kind, names in json.loads(path.read_text()).items():
        for name, reason in names.items():
            assert reason, f"{kind}: {name}"
    assert Case("add", 0, "3", (("R",),)).ranks() == 3
