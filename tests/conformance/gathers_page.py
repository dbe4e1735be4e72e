"""Writes docs/reference/gathers.md from the results of a run: which operators make whole
what was cut, by mathematics or for want of something better."""
import pathlib
import re

from coverage_page import load
from summary import figures, gathers_by_operator, share

HEAD = """# Gathers

What PyTorch's OpInfo database meets of [gathers](../05_explain.md#gather_counts-what-was-made-whole)
on Tessera: operands or results of more than one element that come to lie in fewer parts,
whatever the rule. Written by `make conformance`
(`tests/conformance/run.py --backend tessera --gathers`); do not edit.

Every tensor of a sample is cut independently of the others, so that operators whose operands
fit when they are cut alike (`mul`, `mm`) gather here too, the cheapest operand. Bytes are what
all ranks together came to hold more of.
"""
NAMED = """

## Named: whole values by mathematics, or for now

At most 60 operators; the list is `src/tensor/inspect/named_operators.cpp`, and
`tessera ops` prints `named`. Variants (in place, out, foreach) are named by their base.

| operator | why | combinations | bytes |
| --- | --- | ---: | ---: |
"""
OPEN = """
## Open: everything else that gathers

| operator | combinations | bytes |
| --- | ---: | ---: |
"""
MOST_NAMED = 60


def base_of(op: str) -> str:
    """'aten::sort_.stable' -> 'aten::sort'."""
    return op.split(".")[0].rstrip("_") if not op.endswith("::_") else op


def named_reasons() -> dict[str, str]:
    """Returns the named list as the library has it: base -> reason."""
    import tessera

    return {base_of(op.name): op.gathers.removeprefix("named: ")
            for op in tessera.list_operators() if op.gathers.startswith("named: ")}


def added_up(gathers: dict) -> dict[str, tuple[int, int]]:
    """Adds up variants of an operator."""
    sums: dict[str, tuple[int, int]] = {}
    for op, (cases, size) in gathers.items():
        known = sums.get(base_of(op), (0, 0))
        sums[base_of(op)] = (known[0] + cases, known[1] + size)
    return sums


def write_gathers_page(folder: pathlib.Path, page: pathlib.Path) -> None:
    document, results = load(folder / "tessera.json")
    found = added_up(gathers_by_operator(results))
    sums = figures(results)
    named = named_reasons()
    lines = [
        HEAD, f"torch {document['torch']}, seed {document['seed']}.", "",
        "| | |", "| --- | ---: |", f"| combinations | {sums['cases']} |",
        f"| without any gather | {share(sums['cases_without_gather'], sums['cases'])} |",
        "| without one but of the named operators | "
        f"{share(sums['cases_without_open_gather'], sums['cases'])} |"]
    rows = sorted((op, named[op], *found.get(op, (0, 0))) for op in named)
    text = "\n".join(lines) + NAMED
    text += "".join(f"| `{op}` | {why} | {n} | {size} |\n" for op, why, n, size in rows)
    text += OPEN
    others = sorted(((op, *counts) for op, counts in found.items() if op not in named),
                    key=lambda row: (-row[1], row[0]))
    text += "".join(f"| `{op}` | {n} | {size} |\n" for op, n, size in others)
    page.write_text(text)


def listed_on(page: pathlib.Path) -> dict[str, int]:
    """Reads the named operators of the page, and how many combinations gathered."""
    part = page.read_text().split("## Named")[1].split("## Open")[0]
    return {op: int(n) for op, n in
            re.findall(r"^\| `([^`]+)` \| .* \| (\d+) \| \d+ \|$", part, re.M)}
