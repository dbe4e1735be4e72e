#!/usr/bin/env python3
"""Compares what Tessera decides for sample calls with what PyTorch's DTensor does.

    scripts/compare_upstream.py                 report; exit 1 when there is a gap
    scripts/compare_upstream.py --verbose       with every row that was excused
    .venv/bin/python scripts/compare_upstream.py --record
                                                ask the installed PyTorch anew

PyTorch's answers are those of scripts/upstream_strategies.py, recorded in
tests/golden/upstream_strategies.json.gz; ours come from the program decide_calls
(TESSERA_BIN, or build/bin), which runs the same calls through the rule engine on a
simulated mesh. A gap is

    no-rule    an overload with a strategy there that runs on whole values here
    lost       a row in which an operand stays sharded there and not here
    output     a row whose result is sharded there, and replicated or missing here

unless tests/golden/upstream_exceptions.txt excuses it: lines of

    OPERATOR [KIND] [GIVEN]: reason

where OPERATOR is a name or pattern (aten::foo.*), KIND one of the words above (all
when left out), GIVEN the placements of the operands, as "S(0),R" or a pattern. An
exception that excuses nothing is a failure too. A reason that begins with "open" names
a gap that is still to be closed; these are counted apart.
"""
import argparse
import collections
import fnmatch
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
RECORDED = GOLDEN / "upstream_strategies.json.gz"
EXCEPTIONS = GOLDEN / "upstream_exceptions.txt"
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "bin"))
KINDS = ("no-rule", "lost", "output")
LIMIT = 100  # seconds for all decisions
# Forms that keep no dim cut, of list_operators().
WHOLE_FORMS = ("fallback", "whole")


class Gap(NamedTuple):
    op: str
    kind: str
    given: str  # "S(0),R"; "" for an operator
    text: str


class Excuse(NamedTuple):
    op: str
    kind: str
    given: str
    reason: str

    def covers(self, gap):
        return (fnmatch.fnmatchcase(gap.op, self.op)
                and self.kind in ("", gap.kind)
                and (not self.given or fnmatch.fnmatchcase(gap.given, self.given)))


def record(path):
    """Asks the installed PyTorch; takes about a minute."""
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "upstream.json")
        subprocess.run([sys.executable, "-B",
                        str(ROOT / "scripts" / "upstream_strategies.py"),
                        "--output", output], check=True)
        with open(output, encoding="utf-8") as file:
            report = json.load(file)
    text = json.dumps(report, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def decide(upstream):
    """Returns what decide_calls prints."""
    done = subprocess.run([str(BIN / "decide_calls")], input=json.dumps(upstream),
                          capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode != 0:
        sys.exit(f"decide_calls failed with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def parse_excuse(line):
    subject, _, reason = line.partition(": ")
    words = subject.split()
    kind = words.pop(1) if len(words) > 1 and words[1] in KINDS else ""
    if not words or len(words) > 2 or not reason.strip():
        sys.exit(f"{EXCEPTIONS}: a line must be 'OPERATOR [KIND] [GIVEN]: reason'; "
                 f"got '{line}'")
    return Excuse(words[0], kind, words[1] if len(words) == 2 else "", reason.strip())


def read_excuses(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return [parse_excuse(line) for line in lines
            if line.strip() and not line.startswith("#")]


def is_shard(placement):
    return placement is not None and placement.startswith("S")


def lost_operands(row, ours, operands):
    """Returns "self: S(0) -> R" for each operand that only upstream keeps."""
    return [f"{name}: {given} -> {mine}"
            for name, given, theirs, mine in zip(
                operands, row["given"], row["used"], ours["used"])
            if is_shard(given) and theirs == given and mine != given]


def lost_outputs(row, ours):
    mine = ours["out"]
    if len(mine) == 1:
        mine = mine * len(row["out"])  # one plan for all elements of a list
    return [f"output {i}: {theirs} there, {own} here"
            for i, (theirs, own) in enumerate(zip(row["out"], mine))
            if is_shard(theirs) and own is not None and own != theirs
            and not is_shard(own)]


def gaps_of_row(call, row, ours):
    given = ",".join(row["given"])
    if "error" in ours:
        if any(is_shard(g) and g == u for g, u in zip(row["given"], row["used"])):
            yield Gap(call["op"], "lost", given, "refused: " + ours["error"])
        return
    lost = lost_operands(row, ours, call["operands"])
    if lost:
        yield Gap(call["op"], "lost", given, "; ".join(lost) + f" ({ours['reason']})")
        return
    # An operand that neither keeps says nothing about the result.
    kept = any(is_shard(g) and g == u for g, u in zip(row["given"], row["used"]))
    outputs = lost_outputs(row, ours) if kept else []
    if outputs:
        yield Gap(call["op"], "output", given,
                  "; ".join(outputs) + f" ({ours['reason']})")


def find_gaps(upstream, ours):
    forms = ours["operators"]
    for op in upstream["overloads"]:
        form = forms.get(op, "no such operator")
        if form in WHOLE_FORMS or op not in forms:
            yield Gap(op, "no-rule", "", form)
    for call, decisions in zip(upstream["calls"], ours["calls"]):
        for row, decision in zip(call["rows"], decisions):
            yield from gaps_of_row(call, row, decision)


def compare(upstream, ours, excuses):
    """Returns the gaps, those excused with their reason, and unused excuses."""
    gaps, excused = [], []
    used = set()
    for gap in dict.fromkeys(find_gaps(upstream, ours)):
        excuse = next((e for e in excuses if e.covers(gap)), None)
        if excuse is None:
            gaps.append(gap)
        else:
            excused.append((gap, excuse.reason))
            used.add(excuse)
    return gaps, excused, [e for e in excuses if e not in used]


def kept_rows(upstream):
    return sum(1 for call in upstream["calls"] for row in call["rows"]
               if any(is_shard(g) and g == u
                      for g, u in zip(row["given"], row["used"])))


def print_report(upstream, ours, gaps, excused, unused, verbose):
    for gap in gaps:
        print(f"{gap.kind:8} {gap.op} [{gap.given}]: {gap.text}")
    if verbose:
        for gap, reason in excused:
            print(f"excused  {gap.kind} {gap.op} [{gap.given}]: {gap.text}; {reason}")
    for excuse in unused:
        print(f"unused   {excuse.op} {excuse.kind} {excuse.given}: excuses nothing")
    forms = collections.Counter(
        ours["operators"].get(op, "none") for op in upstream["overloads"])
    print(f"torch {upstream['torch']}: {len(upstream['overloads'])} overloads with a "
          f"strategy there; here " +
          ", ".join(f"{form} {count}" for form, count in forms.most_common()))
    still_open = sum(1 for _, reason in excused if reason.startswith("open"))
    print(f"{kept_rows(upstream)} rows of {len(upstream['calls'])} calls keep a shard "
          f"there; {len(gaps)} gaps, {len(excused)} excused, {still_open} of "
          f"these open; out of scope: "
          f"{len(upstream['other'])} operators outside aten")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--record", action="store_true",
                        help="ask the installed PyTorch anew first")
    parser.add_argument("--verbose", action="store_true", help="list what is excused")
    options = parser.parse_args()
    if options.record:
        record(RECORDED)
    upstream = json.loads(gzip.decompress(RECORDED.read_bytes()))
    ours = decide(upstream)
    gaps, excused, unused = compare(upstream, ours, read_excuses(EXCEPTIONS))
    print_report(upstream, ours, gaps, excused, unused, options.verbose)
    return 1 if gaps or unused else 0


if __name__ == "__main__":
    sys.exit(main())
