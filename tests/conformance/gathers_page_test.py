"""The list of operators that are named as needing whole values is what was measured."""
import pathlib

from gathers_page import MOST_NAMED, base_of, listed_on, named_reasons

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/gathers.md"


def test_the_named_list_is_short_and_has_reasons():
    named = named_reasons()
    assert 0 < len(named) <= MOST_NAMED
    assert all(len(reason) > 10 for reason in named.values())


def test_every_named_operator_was_seen_to_gather():
    listed = listed_on(PAGE)
    assert set(listed) == set(named_reasons()), "write the page anew: --gathers"
    assert [op for op, combinations in listed.items() if combinations == 0] == []


def test_variants_have_one_base():
    assert base_of("aten::sort.stable") == base_of("aten::sort") == "aten::sort"
    assert base_of("aten::tril_") == "aten::tril"
