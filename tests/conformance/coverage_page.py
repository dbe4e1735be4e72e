"""Writes docs/reference/op_coverage.md from the results of a run."""
import json
import pathlib

import entries
from entry_process import EntryResult
from summary import figures, share

HEAD = """# Operator coverage

Every entry of PyTorch's OpInfo database that supports float32 on the CPU, on sharded
tensors: Tessera, and PyTorch's own DTensor under the same harness. Written by
`make conformance`; do not edit.

Each entry is called with its own samples. Each tensor of a sample is, independently of
the others, replicated, cut along any dim, cut by a strided shard, or a sum of addends,
on meshes of 3, of 4 and of 2 x 2 ranks, evenly and unevenly as sizes fall. Outputs
(values, dtype, shape, whether they require a gradient) and the gradients of all
inputs are compared with those of plain tensors. An entry passes where every combination
does. *error*: an exception; *wrong*: another value, dtype or shape without one; *hang*
and *crash*: the process had to be ended, or ended by a signal.
"""
NOTES = """
- Entries without a tensor among their arguments have nothing to shard; they run as
  they are, and their results are plain tensors. Others with fewer than 64 combinations
  have no more: their samples are few, or of few dims.
- A combination fell back where at least one of its operators ran on whole values for
  want of a rule.
- Sums in another order round differently. Where a result is outside an entry's own
  tolerances, float64 decides: it counts as equal where it is off by at most eight times
  what plain float32 is off. {rounding} of Tessera's combinations were decided so,
  {rounding_theirs} of DTensor's.
- DTensor is slower, so of the same combinations it ran {their_cases} per entry,
  chosen at random, and no more once an entry took {their_seconds:g} s: it had fewer
  chances to fail. Combinations whose inputs it cannot make
  or give back ({unrepresented}) are not counted, its random values are not compared
  with anything (it does not promise that they are the same on every mesh), any
  error serves it for sparse entries, and it ran on its threaded process group, as in
  its own operator tests. Entries of the list for `ImplicitReplication` run under its
  `implicit_replication`.
"""
LISTS = {
    "excluded": "Excluded: plain CPU tensors cannot run them",
    "random": "Random: compared with Tessera's own result on one rank, and in mean "
              "and mean square with torch's",
    "replicated_random": "Run under `ReplicatedRandom`",
    "empty": "Uninitialised: compared in all but values",
    "sparse": "Sparse: must be refused by the documented error",
    "implicit_replication": "Run under `ImplicitReplication`",
}


def load(path: pathlib.Path) -> tuple[dict, list[EntryResult]]:
    """Reads what run.py wrote."""
    document = json.loads(path.read_text())
    results = []
    for fields in document["entries"]:
        fields.pop("status")
        results.append(EntryResult(**fields))
    return document, results


def summary_rows(ours: dict, theirs: dict) -> list[str]:
    names = {
        "entries": "entries with float32", "excluded": "excluded",
        "testable": "testable",
        "pass": "**pass**", "error": "error", "wrong": "wrong", "hang": "hang",
        "crash": "crash", "combinations": "combinations",
        "uneven": "... planned with uneven shards",
        "no_tensors": "entries without a tensor among their arguments",
        "at_least_64": "entries with 64 combinations or more", "samples": "samples run",
        "gradients": "... of them with gradients"}
    rows = ["| | Tessera | DTensor |", "| --- | ---: | ---: |"]
    rows += [f"| {text} | {ours[key]} | {theirs[key]} |" for key, text in names.items()]
    for key, text in (("samples", "samples none of whose combinations fell back"),
                      ("cases", "combinations without fallback")):
        rows.append(f"| {text} | {share(ours[key + '_without_fallback'], ours[key])} "
                    f"| - |")
    return rows


def short(text: str) -> str:
    """One line of a failure, fit for a table."""
    text = " ".join(text.split()).replace("|", "/").replace("`", "'")
    text = text.replace("<", "(").replace(">", ")")
    return text if len(text) <= 90 else text[:87] + "..."


def verdict(result: EntryResult | None) -> str:
    if result is None:
        return "-"
    status = result.status()
    if status in ("pass", "excluded"):
        return status
    first = next(f for f in result.failures if f["kind"] == status)
    # Behind these follow stacks, which are for the log.
    text = first["text"].split(":")[0] if status in ("hang", "crash") else first["text"]
    return (f"{status} ({len(result.failures)} of "
            f"{result.tried()}), {first['phase']}: "
            f"{short(text)}")


def entry_rows(ours: list[EntryResult], theirs: list[EntryResult]) -> list[str]:
    others = {r.name: r for r in theirs}
    rows = ["| entry | samples | combinations | Tessera | fell back | DTensor |",
            "| --- | ---: | ---: | --- | ---: | --- |"]
    for r in ours:
        rows.append(
            f"| `{r.name}` | {len(r.samples_run)} | {r.tried()} | "
            f"{verdict(r)} | {r.fallback_cases or ''} | "
            f"{verdict(others.get(r.name))} |")
    return rows


def list_rows() -> list[str]:
    rows = []
    for kind, title in LISTS.items():
        rows += ["", f"### {title}", "", "| entry | why |", "| --- | --- |"]
        for name, reason in sorted(entries.LISTS[kind].items()):
            if isinstance(reason, dict):
                reason = f"{reason['reason']} Error: \"{reason['error']}\"."
            rows.append(f"| `{name}` | {reason} |")
    return rows


def write_page(folder: pathlib.Path, page: pathlib.Path) -> None:
    """Writes the page from folder/tessera.json and folder/dtensor.json."""
    document, ours = load(folder / "tessera.json")
    their_document, theirs = load(folder / "dtensor.json")
    our_figures, their_figures = figures(ours), figures(theirs)
    notes = NOTES.format(
        rounding=our_figures["rounding"], rounding_theirs=their_figures["rounding"],
        unrepresented=their_figures["unrepresented"],
        their_seconds=their_document["seconds_per_entry"],
        their_cases=f"at most {their_document['cases_per_entry']}")
    lines = [HEAD, f"torch {document['torch']}, seed {document['seed']}.", "",
             *summary_rows(our_figures, their_figures), notes,
             "## Named lists", *list_rows(), "", "## Entries", "",
             *entry_rows(ours, theirs)]
    page.write_text("\n".join(lines) + "\n")
