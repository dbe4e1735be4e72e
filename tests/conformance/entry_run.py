"""Runs all cases of one entry, in a process of its own."""
import contextlib
import dataclasses
import itertools
import json
import random
import re
import threading
import time

import torch

import combinations
import entries
from cases import MESHES, Case
from comparison import (Difference, ShardedRun, differences, double_outcome,
                        is_rounding, plain_outcome)
from moments import moment_differences


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much of an entry is run."""

    seed: int = 0
    # Samples per entry, combinations per sample and mesh, combinations per entry.
    samples: int = 256
    each: int = 3
    least: int = 96
    # Cases per entry; 0: all.
    cases: int = 0
    # Seconds per entry, after which no further case is begun; 0: no limit.
    seconds: float = 0
    # Runs this case only.
    only: Case | None = None


class CaseFailed(Exception):
    """Ends a world: one of its ranks could not go on."""


class EntryRun:
    """The cases of one entry and what became of them, written line by line."""

    def __init__(self, name: str, op, backend, plan: Plan, report, progress) -> None:
        self.name, self.op, self.backend, self.plan = name, op, backend, plan
        self.report, self.progress = report, progress
        self.kind = entries.kind_of(name)
        self.rtol, self.atol = entries.tolerances(op)
        self.expected: dict = {}
        self.truth: dict = {}
        self.begun = time.monotonic()
        self.late = False
        self.first_error: tuple | None = None
        self.counts = {"strides": 0, "rounding": 0}

    def write(self, **fields) -> None:
        self.report.write(json.dumps(fields) + "\n")
        self.report.flush()

    def run(self, start: int) -> None:
        """Runs the cases from `start` on; what goes before was reported earlier."""
        cases = self.prepare(first_time=start == 0)
        if cases and self.kind == "random" and start == 0:
            self.check_moments()
        index = start
        while index < len(cases) and not self.is_late():
            index = self.run_world_of(cases, index)
        self.write(what="done", **self.counts)

    def is_late(self) -> bool:
        return 0 < self.plan.seconds < time.monotonic() - self.begun

    def prepare(self, first_time: bool) -> list[Case]:
        """Makes samples, cases and expectations."""
        self.samples = entries.all_samples(self.name, self.op, self.plan.seed)
        self.tensors = [entries.tensors_of(s) for s in self.samples]
        numbers = entries.chosen_samples(self.samples, self.plan.samples)
        cases = [self.plan.only] if self.plan.only else self.choose_cases(numbers)
        refused = self.expect(sorted({c.sample for c in cases}))
        cases = [c for c in cases if c.sample not in refused]
        numbers = sorted({c.sample for c in cases})
        if first_time:
            self.describe(cases, numbers, refused)
        return [] if self.kind == "excluded" else cases

    def choose_cases(self, numbers: list[int]) -> list[Case]:
        cases = combinations.cases_of(
            self.name, self.samples, numbers, entries.tensors_of, self.plan.least,
            self.plan.each, self.plan.seed)
        if self.plan.cases and len(cases) > self.plan.cases:
            draw = random.Random(entries.seed_of(self.name, self.plan.seed))
            cases = draw.sample(cases, self.plan.cases)
        return sorted(cases, key=lambda c: c.ranks())

    def describe(self, cases: list[Case], numbers: list[int], refused: dict) -> None:
        uneven = sum(combinations.is_uneven(c, self.tensors[c.sample]) for c in cases)
        self.write(what="plan", kind=self.kind, samples=len(numbers),
                   all_samples=len(self.samples), refused=len(refused),
                   combinations=len(cases), uneven=uneven,
                   tensors=max((len(t) for t in self.tensors), default=0),
                   gradients=[n for n in numbers if self.expected[n].gradients])
        self.write(what="cases", names=[str(c) for c in cases])
        if self.kind == "excluded":
            if numbers:
                self.fail(None, Difference(
                    "plain", "stale", "listed as excluded, but plain tensors run it"))
        elif refused and not numbers:
            self.fail(None, Difference(
                "plain", "error", "no sample runs on plain tensors: "
                + next(iter(refused.values()))))

    def expect(self, numbers: list[int]) -> dict[int, str]:
        """Runs samples on plain tensors; returns those that are refused, and why."""
        refused = {}
        for number in numbers:
            torch.manual_seed(self.plan.seed)
            try:
                self.expected[number] = plain_outcome(
                    self.op, self.samples[number], self.tensors[number])
            except Exception as error:
                refused[number] = " ".join(str(error).split())[:200]
        if self.kind == "random" and self.backend.same_on_every_mesh:
            self.expect_of_one_rank([n for n in numbers if n not in refused
                                     and self.draws(n)])
        return refused

    def draws(self, number: int) -> bool:
        """Tells whether a sample depends on the seed: some have no dropout."""
        for other in range(1, 9):
            torch.manual_seed(self.plan.seed + other)
            again = plain_outcome(self.op, self.samples[number], self.tensors[number])
            if differences(again, self.expected[number], self.rtol, self.atol):
                return True
        return False

    def expect_of_one_rank(self, numbers: list[int]) -> None:
        """Random values are compared with those of one rank."""
        def body(rank: int) -> None:
            mesh = self.backend.mesh((1,))
            for number in numbers:
                plain = self.expected[number]
                self.backend.seed(self.plan.seed)
                self.expected[number] = self.sharded(mesh).outcome(
                    self.samples[number], self.tensors[number],
                    [("R",)] * len(self.tensors[number]), plain)
                bad = differences(self.expected[number], plain, 0, 0, values=False)
                for difference in bad:
                    self.fail(None, difference)
        self.backend.run_world(1, body)

    def sharded(self, mesh) -> ShardedRun:
        guard = contextlib.nullcontext
        if self.name in entries.LISTS["implicit_replication"]:
            guard = self.backend.implicit_replication
        if self.name in entries.LISTS["replicated_random"]:
            guard = self.backend.replicated_random
        return ShardedRun(self.backend, mesh, self.op, guard)

    def check_moments(self) -> None:
        if self.backend.same_on_every_mesh and not self.plan.only:
            for text in moment_differences(self):
                self.fail(None, Difference("moments", "wrong", text))

    def fail(self, case: Case | None, difference: Difference, rank: int = -1) -> None:
        self.write(what="failure", case=str(case) if case else f"{self.name}#",
                   rank=rank, **dataclasses.asdict(difference))

    def run_world_of(self, cases: list[Case], start: int) -> int:
        """Runs the cases that need as many ranks as the one at `start`; returns the
        index to go on at, the one after a case that broke the world."""
        ranks = cases[start].ranks()
        end = start + len(list(itertools.takewhile(
            lambda c: c.ranks() == ranks, cases[start:])))
        self.first_error = None
        self.at = start
        self.fallbacks = self.backend.fallbacks()
        self.gathers = self.backend.gathers()
        self.wrong: list = []
        gate = threading.Barrier(ranks, action=lambda: self.finish(cases))
        try:
            self.backend.run_world(
                ranks, lambda rank: self.rank_body(rank, cases, start, end, gate))
        except BaseException as error:
            if self.first_error is None:
                self.first_error = (start, -1, Difference(
                    "world", "error", f"{type(error).__name__}: {error}"))
        if self.first_error is None:
            return end
        index, rank, difference = self.first_error
        if difference.phase == "input" and self.backend.name != "tessera":
            self.write(what="case", index=index, outcome="unrepresented")
        else:
            self.fail(cases[index], difference, rank)
        self.progress(index + 1)
        return index + 1

    def rank_body(self, rank, cases, start: int, end: int, gate) -> None:
        torch.set_num_threads(1)
        meshes: dict = {}
        for index in range(start, end):
            case = cases[index]
            if case.mesh not in meshes:
                meshes[case.mesh] = self.backend.mesh(MESHES[case.mesh])
            run = self.sharded(meshes[case.mesh])
            try:
                found = self.run_case(case, run)
            except BaseException as error:
                if self.first_error is None:
                    text = f"{type(error).__name__}: {error}"
                    self.first_error = (index, rank, Difference(
                        run.phase, "error", text[:2000]))
                gate.abort()
                raise CaseFailed(str(case)) from None
            self.wrong += [(rank, d) for d in found]
            gate.wait()
            if self.late:
                return

    def run_case(self, case: Case, run: ShardedRun) -> list[Difference]:
        want = self.expected[case.sample]
        sample, tensors = self.samples[case.sample], self.tensors[case.sample]
        self.backend.seed(self.plan.seed)
        if self.kind == "sparse":
            return self.run_sparse(case, run)
        got = run.outcome(sample, tensors, case.placements, want)
        values = self.kind == "plain" or (
            self.kind == "random" and self.backend.same_on_every_mesh)
        if got.strides != want.strides:
            self.counts["strides"] += 1
        found = differences(got, want, self.rtol, self.atol, values)
        if found and values and self.is_rounding(case.sample, got, want):
            self.counts["rounding"] += 1
            return []
        return found

    def is_rounding(self, number: int, got, want) -> bool:
        """Asks float64 which of two results is off."""
        if self.kind == "random":
            return False
        if number not in self.truth:
            try:
                self.truth[number] = double_outcome(
                    self.op, self.samples[number], self.tensors[number], want)
            except Exception:
                self.truth[number] = None
        truth = self.truth[number]
        return truth is not None and is_rounding(
            got, want, truth, self.rtol, self.atol)

    def run_sparse(self, case: Case, run: ShardedRun) -> list[Difference]:
        """Sparse layouts must be refused by the error that the manual names."""
        pattern = entries.LISTS["sparse"][self.name]["error"]
        try:
            run.outcome(self.samples[case.sample], self.tensors[case.sample],
                        case.placements, None)
        except Exception as error:
            if self.backend.name != "tessera" or re.search(pattern, str(error)):
                return []
            raise
        return [Difference("forward", "wrong", f"no error that matches {pattern!r}")]

    def finish(self, cases: list[Case]) -> None:
        """One rank calls it when all have ended a case."""
        now = self.backend.fallbacks()
        gathers = self.backend.gathers()
        outcome = "wrong" if self.wrong else "pass"
        self.write(what="case", index=self.at, sample=cases[self.at].sample,
                   outcome=outcome,
                   fallback=[op for op in now if now[op] != self.fallbacks.get(op)],
                   gathers={op: gathers[op][1] - self.gathers.get(op, (0, 0))[1]
                            for op in gathers if gathers[op] != self.gathers.get(op)})
        for rank, difference in self.wrong[:1]:
            self.fail(cases[self.at], difference, rank)
        self.wrong = []
        self.fallbacks = now
        self.gathers = gathers
        self.at += 1
        self.progress(self.at)
        self.late = self.is_late()
