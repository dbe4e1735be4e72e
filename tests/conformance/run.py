#!/usr/bin/env python3
"""Judges sharded tensors by PyTorch's own OpInfo database.

  tests/conformance/run.py --page                   all entries, both backends
  tests/conformance/run.py --quick                  the sample of `make test`
  tests/conformance/run.py --ops '^linalg' --shard 1/4 --backend tessera
  tests/conformance/run.py --case 'add#3@2x2:S(0)R;RP' --seed 0

Writes what it saw to build/conformance/BACKEND.json (BACKEND.part.json where not
all entries ran), with --page also docs/reference/op_coverage.md. Ends with 1 where Tessera
fails an entry; PyTorch's DTensor is measured, not judged.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import sys
import time

import thread_ranks  # noqa: F401  (before torch)
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "build/python"))

import entries  # noqa: E402
from backends import BACKENDS
from cases import parse_case
from entry_process import EntryResult, run_entries
from entry_run import Plan
from coverage_page import write_page
from gathers_page import write_gathers_page
from summary import print_summary

# `make test` runs one of so many entries, and few combinations of each.
QUICK_PART = 4
QUICK = Plan(samples=8, each=1, least=12, cases=9)
# DTensor is some thirty times slower: it runs as many of the same combinations.
REPRESENTATIVE = Plan(cases=12, seconds=20)


def arguments(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--backend", choices=[*BACKENDS, "both"], default="both")
    parser.add_argument("--ops", default="", help="entries whose name this finds")
    parser.add_argument("--shard", default="1/1", help="i/n: every n-th entry")
    parser.add_argument("--quick", action="store_true", help="few cases of each")
    parser.add_argument("--case", help="one case, as a failure names it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=30, help="seconds per case")
    parser.add_argument("--page", action="store_true", help="write the docs page")
    parser.add_argument("--gathers", action="store_true",
                        help="write docs/reference/gathers.md from a whole run")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/conformance")
    return parser.parse_args(argv)


def chosen_entries(args) -> dict:
    """Returns the entries that the arguments ask for, in the order of names."""
    every = entries.all_entries()
    if args.case:
        return {args.case.entry: every[args.case.entry]}
    part, parts = (int(n) for n in args.shard.split("/"))
    found = [n for n in sorted(every) if re.search(args.ops, n)]
    if args.quick and not args.ops:
        found = [n for n in found if is_quick(n)]
    return {n: every[n] for n in found[part - 1::parts]}


def is_quick(name: str) -> bool:
    """Chooses by name, so that the choice stays when entries are added."""
    listed = any(name in names for names in entries.LISTS.values())
    return listed or entries.seed_of(name, 0) % QUICK_PART == 0


def plan_of(args, backend: str) -> Plan:
    plan = Plan()
    if args.quick:
        plan = QUICK
    elif backend == "dtensor":
        plan = REPRESENTATIVE
    return dataclasses.replace(plan, seed=args.seed, only=args.case)


def repeat_command(case: str, args, backend: str) -> str:
    return (f".venv/bin/python tests/conformance/run.py --backend {backend} "
            f"--seed {args.seed} --case '{case}'")


def report_failures(result: EntryResult, args, backend: str) -> None:
    print(f"{result.status().upper():6} {result.name}: "
          f"{len(result.failures)} failures", flush=True)
    for failure in result.failures[:2 if not args.case else None]:
        print(f"    {failure['phase']}, {failure['kind']}: {failure['text'][:400]}")
        if "@" in failure["case"]:
            print(f"    {repeat_command(failure['case'], args, backend)}", flush=True)


def clear_bar() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def draw_progress(done: int, total: int, seconds: float) -> None:
    """A terminal has one line with a bar, other outputs a line per 50 entries."""
    line = f"  {done} of {total} entries, {seconds:.0f} s"
    if sys.stderr.isatty():
        full = 30 * done // total
        bar = "#" * full + "." * (30 - full)
        print(f"\r\033[K{line}  {bar}", end="" if done < total else "\r\033[K",
              file=sys.stderr, flush=True)
    elif done % 50 == 0:
        print(line, flush=True)


def run_backend(name: str, args) -> list[EntryResult]:
    """Runs the chosen entries; returns and writes the results."""
    found = chosen_entries(args)
    plan = plan_of(args, name)
    print(f"{name}: {len(found)} entries, torch {torch.__version__}, "
          f"seed {args.seed}", flush=True)
    results: list[EntryResult] = []
    begun = time.monotonic()

    def on_end(result: EntryResult) -> None:
        results.append(result)
        if result.failures:
            clear_bar()
            report_failures(result, args, name)
        draw_progress(len(results), len(found), time.monotonic() - begun)

    run_entries(found, BACKENDS[name](), plan, args.limit, args.jobs,
                args.out / f"work.{os.getpid()}", on_end)
    results.sort(key=lambda r: r.name)
    seconds = time.monotonic() - begun
    if not args.case:
        write_results(name, args, plan, seconds, results)
    print_summary(name, results, seconds)
    return results


def write_results(name: str, args, plan: Plan, seconds: float, results) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    document = {
        "backend": name, "torch": torch.__version__, "seed": args.seed,
        "quick": args.quick, "complete": args.shard == "1/1" and not args.ops,
        "cases_per_entry": plan.cases, "samples_per_entry": plan.samples,
        "seconds_per_entry": plan.seconds,
        "seconds": round(seconds, 1),
        "entries": [{**dataclasses.asdict(r), "status": r.status()} for r in results]}
    whole = document["complete"] and not args.quick
    path = args.out / (f"{name}.json" if whole else f"{name}.part.json")
    path.write_text(json.dumps(document, indent=1) + "\n")


def main(argv=None) -> int:
    args = arguments(argv)
    args.case = parse_case(args.case) if args.case else None
    torch.set_num_threads(1)
    names = list(BACKENDS) if args.backend == "both" else [args.backend]
    failed = 0
    for name in names:
        results = run_backend(name, args)
        if name == "tessera":
            failed = sum(r.status() not in ("pass", "excluded") for r in results)
    if args.page or args.gathers:
        write_gathers_page(args.out, ROOT / "docs/reference/gathers.md")
    if args.page:
        write_page(args.out, ROOT / "docs/reference/op_coverage.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
