#!/usr/bin/env python3
"""Plants bugs in the planner, one at a time, and requires that plan_test finds each.

  tests/plan/planted_bugs.py            builds and runs plan_test with each bug
  tests/plan/planted_bugs.py --check    only: every text to replace stands once in its file
  tests/plan/planted_bugs.py NAME...    some of them

Copies the sources to build/planted_bugs, so the tree itself is not touched. The unchanged
copy must pass first. Prints a line per bug with the first test that failed, and exits 1
when a bug is not found, does not compile or no longer matches.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_COPIED = shutil.ignore_patterns(
    "build", "build-*", ".git", ".venv", ".cache", "__pycache__")


class Bug(NamedTuple):
    name: str
    wrong: str  # what is wrong with it
    file: str
    old: str
    new: str


BUGS = [
    Bug("message_per_rank", "a message per rank, not per doubling",
        "src/plan/cost.cpp",
        "  return std::bit_width(static_cast<uint64_t>(ranks - 1));",
        "  return ranks - 1;"),
    Bug("all_reduce_once", "an all_reduce has the messages of one pass, not of two",
        "src/plan/cost.cpp",
        "      return 2 * doublings(ranks);",
        "      return 1 * doublings(ranks);"),
    Bug("gather_by_input", "an all_gather is priced by its small input",
        "src/plan/cost.cpp",
        "return sent_of(kind, ranks, std::max(before, after));",
        "return sent_of(kind, ranks, kind == StepKind::kAllGather ? before : std::max(before, after));"),
    Bug("fastest_link", "a group over two mesh dims has the best bandwidth of them",
        "src/plan/cost.cpp",
        "worst.bandwidth = std::min(",
        "worst.bandwidth = std::max("),
    Bug("bytes_of_the_largest", "bytes_on counts the shard after a step, not the larger",
        "src/plan/cost.cpp",
        "shard_elements(step.before, coordinate),",
        "shard_elements(step.after, coordinate),"),
    Bug("outer_cut_gathered", "a cut is undone although a later cut lies inside it",
        "src/plan/search/transitions.cpp",
        "      if (!states_.is_innermost(s_, m)) {",
        "      if (states_.mesh_dims() < 3 && !states_.is_innermost(s_, m)) {"),
    Bug("mesh_order", "the innermost cut is that of the last mesh dim, whatever the turns",
        "src/plan/search/states.cpp",
        "if (cut_dim(s, other) == d && order(s, other) > order(s, m)) {",
        "if (cut_dim(s, other) == d && other > m) {"),
    Bug("reductions_mixed", "partials of different ops are reduced as one group",
        "src/plan/search/transitions.cpp",
        "          states_.index(s_, m) != states_.index(s_, first)) {",
        "          !states_.is_partial(s_, first)) {"),
    Bug("partials_mixed", "a partial is made beside one of another op",
        "src/plan/search/states.cpp",
        "if (p.is_partial() && p != wanted && !(adds(p) && adds(wanted))) {",
        "if (p.is_partial() && adds(p) && p != wanted && !adds(wanted) && m > other) {"),
    Bug("strided_as_plain", "the lengths of a strided cut are those of a plain one",
        "src/plan/search/states.cpp",
        "const Cut rule(placement(cuts, m), parts);",
        "const Placement& p = placement(cuts, m);\n"
        "    const Cut rule(p.fits_any_size() ? Shard(0) : p, parts);"),
    Bug("ragged_as_plain", "the lengths of a ragged cut are those of a plain one",
        "src/plan/search/states.cpp",
        "const Cut rule(placement(cuts, m), parts);",
        "const Placement& p = placement(cuts, m);\n"
        "    const Cut rule(p.fits_any_size() ? p : Shard(0), parts);"),
    Bug("ragged_anywhere", "a ragged cut is made where its lengths do not add up",
        "src/plan/search/states.cpp",
        "if (!before.equal || before.largest != p.begins().back()) {",
        "if (before.largest != p.begins().back()) {"),
    Bug("narrow_search", "small meshes are searched as narrowly as large ones",
        "src/plan/search/states.cpp",
        "constexpr double kWideStates = 1500;",
        "constexpr double kWideStates = 150;"),
    Bug("one_order", "a reduce_scatter over several mesh dims knows one order of cuts",
        "src/plan/search/transitions.cpp",
        "append_cuts(StepKind::kReduceScatter, bare, dims, 0, Append::kAll);",
        "append_cuts(StepKind::kReduceScatter, bare, dims, 1, Append::kAll);"),
    Bug("first_replica", "an exchange takes every copy from coordinate 0",
        "src/plan/transfer/exchange_senders.cpp",
        "    return *own;",
        "    return Coordinate(own->size(), 0);"),
    Bug("received_only", "an exchange is priced by what arrives, a busy sender is free",
        "src/plan/transfer/exchange.cpp",
        "  return std::max(most, *std::max_element(sent.begin(), sent.end()));",
        "  return most;"),
    Bug("position_for_rank", "what stays on its rank is told by the position in the mesh",
        "src/plan/transfer/exchange.cpp",
        "if (from_ranks[static_cast<size_t>(position)] != to) {",
        "if (position != to) {"),
    Bug("reduced_by_exchange", "an exchange makes partials of the target out of R",
        "src/plan/search/transitions.cpp",
        "    if (states.is_partial(to, m) && !same) {",
        "    if (states.is_partial(to, m) && !same && m > 0) {"),
    Bug("no_memory_limit", "steps between intermediate results may need any memory",
        "src/plan/search/search.cpp",
        "           before + after <=\n",
        "           before - after <=\n"),
    Bug("peak_without_input", "the peak forgets the input of a step",
        "src/plan/search/redistribute_plan.cpp",
        "(step.is_in_place() ? 0 : before)",
        "(step.is_in_place() ? before : 0)"),
    Bug("first_way_stays", "a state keeps the first way to it, not the cheapest",
        "src/plan/search/search.cpp",
        "(node.reached && node.price <= next)",
        "node.reached"),
    Bug("eager_bound", "an exchange is given up by a bound above its price",
        "src/plan/search/search.cpp",
        "std::max<int64_t>(node.numel - from.numel, 0);",
        "std::max<int64_t>(node.numel, 0);"),
    Bug("more_steps", "of equal prices the plan with more steps wins",
        "src/plan/search/search.cpp",
        "from.price.steps + 1,",
        "from.price.steps - 1,"),
    Bug("ties_by_history", "of equal prices the plan depends on plans made before",
        "src/plan/search/search.cpp",
        "    queue_.emplace(price, entries_++, s);",
        "    static int64_t all = 0;\n"
        "    queue_.emplace(price, (++all >> 6 & 1) != 0 ? entries_++ : -entries_++, s);"),
    Bug("limit_between_meshes", "a plan between meshes may need any memory",
        "src/plan/search/redistribute_plan.cpp",
        "if (memory.peak <= memory.limit &&",
        "if ("),
]


def matches(bug):
    return (ROOT / bug.file).read_text().count(bug.old)


def check_texts(bugs):
    wrong = 0
    for bug in bugs:
        if matches(bug) != 1 or bug.old == bug.new:
            wrong += 1
            print(f"planted_bugs: {bug.name}: the text to replace stands "
                  f"{matches(bug)} times in {bug.file}; it must stand there once")
    return wrong == 0


def run(command, **options):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **options)


class Copy:
    """A copy of the sources with a build folder of its own."""

    def __init__(self, name):
        self.tree = ROOT / "build" / name / "tree"
        self.build = ROOT / "build" / name / "build"
        shutil.rmtree(self.tree, ignore_errors=True)
        shutil.copytree(ROOT, self.tree, ignore=NOT_COPIED, symlinks=True)
        if (ROOT / ".venv").exists():
            (self.tree / ".venv").symlink_to((ROOT / ".venv").resolve())
        done = run(["cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja",
                    "-DTESSERA_BUILD_CLI=OFF", "-DTESSERA_BUILD_EXAMPLES=OFF"])
        if done.returncode != 0:
            sys.exit(f"{name}: cmake failed\n" + done.stdout)

    def compile(self, *targets):
        jobs = os.environ.get("JOBS", str(os.cpu_count()))
        return run(["ninja", "-C", self.build, "-j", jobs, *targets])

    def test(self):
        environment = {k: v for k, v in os.environ.items() if k != "TESSERA_LONG"}
        environment["GTEST_FAIL_FAST"] = "1"
        try:
            return run([self.build / "bin" / "plan_test"], env=environment, timeout=600)
        except subprocess.TimeoutExpired:
            return None

    def write(self, file, text):
        (self.tree / file).write_text(text)


def first_failure(output):
    found = re.search(r"^\[  FAILED  \] (\S+)", output, re.M)
    if found:
        return found.group(1)
    started = re.findall(r"^\[ RUN      \] (\S+)", output, re.M)
    return f"a crash in {started[-1] if started else 'plan_test'}"


def found_by(copy, bug):
    """Returns the test that finds the bug, or "" and says what went wrong."""
    original = (ROOT / bug.file).read_text()
    copy.write(bug.file, original.replace(bug.old, bug.new))
    try:
        built = copy.compile("plan_test")
        if built.returncode != 0:
            print(f"{bug.name:22} DOES NOT COMPILE\n{built.stdout}")
            return ""
        tested = copy.test()
    finally:
        copy.write(bug.file, original)
    if tested is None:
        return "the time limit"
    if tested.returncode == 0:
        print(f"{bug.name:22} NOT FOUND: {bug.wrong}")
        return ""
    return first_failure(tested.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="match the texts only")
    parser.add_argument("names", nargs="*", help="bugs to plant; all of them")
    arguments = parser.parse_args()
    known = {bug.name: bug for bug in BUGS}
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        sys.exit(f"planted_bugs: no bug called {', '.join(unknown)}")
    bugs = [known[name] for name in arguments.names] or BUGS
    if not check_texts(bugs):
        return 1
    if arguments.check:
        print(f"planted_bugs: {len(bugs)} bugs match")
        return 0
    copy = Copy("planted_bugs")
    built = copy.compile("plan_test")
    tested = copy.test() if built.returncode == 0 else None
    if tested is None or tested.returncode != 0:
        print((tested or built).stdout)
        print("planted_bugs: the unchanged sources do not pass")
        return 1
    missed = 0
    for bug in bugs:
        test = found_by(copy, bug)
        missed += test == ""
        if test:
            print(f"{bug.name:22} found by {test}", flush=True)
    print(f"planted_bugs: {len(bugs) - missed} of {len(bugs)} found")
    return 0 if missed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
