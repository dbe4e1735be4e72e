"""Runs entries in forked processes: a crash or a hang fails a case, not the run."""
import dataclasses
import faulthandler
import json
import mmap
import os
import pathlib
import signal
import struct
import sys
import time
import traceback
import warnings

import torch

from entry_run import EntryRun, Plan

# An entry whose processes die more often than this is given up.
RESTARTS = 3


@dataclasses.dataclass
class EntryResult:
    """What became of one entry."""

    name: str
    plan: dict = dataclasses.field(default_factory=dict)
    passed: int = 0
    unrepresented: int = 0
    strides: int = 0
    rounding: int = 0
    seconds: float = 0.0
    # Samples whose cases were run, and those of them that met a fallback.
    cases_run: int = 0
    fallback_cases: int = 0
    fallback_samples: list = dataclasses.field(default_factory=list)
    fallback_ops: dict = dataclasses.field(default_factory=dict)
    # Combinations in which something cut was made whole; by operator how many,
    # and the bytes that ranks came to hold more of.
    gather_cases: int = 0
    open_gather_cases: int = 0
    gather_ops: dict = dataclasses.field(default_factory=dict)
    samples_run: list = dataclasses.field(default_factory=list)
    failures: list = dataclasses.field(default_factory=list)
    given_up: bool = False

    def tried(self) -> int:
        """Returns how many combinations were run, those that failed included."""
        broken = {f["case"] for f in self.failures if f["kind"] != "wrong"}
        return self.cases_run + len(broken)

    def status(self) -> str:
        """'pass', or the worst that happened: crash, hang, wrong, error."""
        kinds = {f["kind"] for f in self.failures}
        for kind in ("crash", "hang", "wrong", "error", "stale"):
            if kind in kinds:
                return kind
        return "excluded" if self.plan.get("kind") == "excluded" else "pass"


class EntryProcess:
    """A running entry; restarted behind the case that killed it."""

    def __init__(self, name: str, op, backend, plan: Plan, limit: float,
                 folder: pathlib.Path) -> None:
        self.name, self.op, self.backend, self.plan = name, op, backend, plan
        self.limit, self.folder = limit, folder
        self.page = mmap.mmap(-1, 16)
        self.result = EntryResult(name)
        self.restarts = 0
        self.cases: list[str] = []
        self.begun = time.monotonic()
        self.fork(0)

    def done_cases(self) -> int:
        return struct.unpack_from("q", self.page)[0]

    def fork(self, start: int) -> None:
        self.path = self.folder / f"{self.name}.{self.restarts}.jsonl"
        struct.pack_into("q", self.page, 0, start)
        self.moved_at, self.moved_to = time.monotonic(), start
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self.child(start)

    def child(self, start: int) -> None:
        """Never returns."""
        status = 1
        try:
            log = os.open(self.path.with_suffix(".log"),
                          os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.stdout = sys.stderr = os.fdopen(log, "w", buffering=1)
            faulthandler.register(signal.SIGUSR1, all_threads=True)
            sys.setswitchinterval(1e-4)
            torch.set_num_threads(1)
            warnings.simplefilter("ignore")
            with self.path.open("w") as report:
                EntryRun(self.name, self.op, self.backend, self.plan, report,
                         lambda done: struct.pack_into("q", self.page, 0, done),
                         ).run(start)
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(status)

    def poll(self) -> bool:
        """Looks after the process; returns whether the entry has ended."""
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        if not ended:
            done = self.done_cases()
            now = time.monotonic()
            if done != self.moved_to:
                self.moved_to, self.moved_at = done, now
            elif now - self.moved_at > self.limit:
                os.kill(self.pid, signal.SIGUSR1)  # writes where its threads are
                time.sleep(0.2)
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return self.died(
                    "hang", f"no end within {self.limit:g} s: {self.log_text()[:1500]}")
            return False
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            return self.died("crash", f"{name}: {self.log_text()[-1500:]}")
        if os.WEXITSTATUS(status):
            return self.died("error", self.log_text()[-1500:])
        self.read_report()
        return self.end()

    def log_text(self) -> str:
        try:
            text = self.path.with_suffix(".log").read_text(errors="replace")
        except OSError:
            return ""
        return " ".join(text.split())

    def died(self, kind: str, text: str) -> bool:
        self.read_report()
        index = self.done_cases()
        known = len(self.cases)
        self.result.failures.append({
            "case": self.cases[index] if index < known else f"{self.name}#",
            "rank": -1, "phase": "process", "kind": kind, "text": text})
        self.restarts += 1
        if self.restarts > RESTARTS or index + 1 >= known:
            self.result.given_up = index + 1 < known
            return self.end()
        self.fork(index + 1)
        return False

    def read_report(self) -> None:
        result = self.result
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            try:
                fields = json.loads(line)
            except ValueError:
                continue  # the last line of a process that was killed
            what = fields.pop("what")
            if what == "plan":
                result.plan = fields
            elif what == "cases":
                self.cases = fields["names"]
            elif what == "failure":
                result.failures.append(fields)
            elif what == "case":
                self.count_case(fields)
            elif what == "done":
                result.strides += fields["strides"]
                result.rounding += fields["rounding"]

    def count_case(self, fields: dict) -> None:
        result = self.result
        if fields["outcome"] == "unrepresented":
            result.unrepresented += 1
            return
        result.cases_run += 1
        result.passed += fields["outcome"] == "pass"
        if fields["sample"] not in result.samples_run:
            result.samples_run.append(fields["sample"])
        if fields["fallback"]:
            result.fallback_cases += 1
            for op in fields["fallback"]:
                result.fallback_ops[op] = result.fallback_ops.get(op, 0) + 1
            if fields["sample"] not in result.fallback_samples:
                result.fallback_samples.append(fields["sample"])
        self.count_gathers(fields["gathers"])

    def count_gathers(self, gathers: dict) -> None:
        result = self.result
        result.gather_cases += bool(gathers)
        result.open_gather_cases += any(
            not self.backend.is_named_whole(op) for op in gathers)
        for op, bytes_more in gathers.items():
            cases, total = result.gather_ops.get(op, (0, 0))
            result.gather_ops[op] = (cases + 1, total + bytes_more)

    def end(self) -> bool:
        self.result.seconds = time.monotonic() - self.begun
        self.page.close()
        for path in self.folder.glob(f"{self.name}.*.jsonl"):
            path.unlink()
        if not self.result.failures:
            for path in self.folder.glob(f"{self.name}.*.log"):
                path.unlink()
        return True


def run_entries(entries: dict, backend, plan: Plan, limit: float, jobs: int,
                folder: pathlib.Path, on_end) -> None:
    """Runs entries, `jobs` at a time; calls on_end(result) as each one ends."""
    folder.mkdir(parents=True, exist_ok=True)
    waiting = list(entries.items())
    running: list[EntryProcess] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name, op = waiting.pop(0)
                running.append(
                    EntryProcess(name, op, backend, plan, limit, folder))
            for process in list(running):
                if process.poll():
                    running.remove(process)
                    on_end(process.result)
            time.sleep(0.005)
    finally:
        for process in running:
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
        if not any(folder.iterdir()):
            folder.rmdir()
