#!/usr/bin/env python3
"""Random programs come to the same bits on threads, MPI and Gloo.

    python3 tests/differential_fuzz/programs_test.py     300 programs on 4 ranks, 60 on 2 and 3
    TESSERA_LONG=1 ...                          2,000 on 4 ranks, 300 on 2 and 3

A program is drawn from its seed and played by programs_probe once per engine;
every step leaves a hash per rank. Where engines differ, or a rank throws, steps
are dropped as long as the failure stays, and what is left is printed.

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""

import collections
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "bin"))
PROBE = str(BIN / "programs_probe")
LONG = os.environ.get("TESSERA_LONG", "0") not in ("", "0")
LIMIT = 1500 if LONG else 100  # seconds for any run
MAX_STEPS = 16  # of a program; see draw_program()

# seeds by number of ranks
PLAYED = {4: 2000, 3: 300, 2: 300} if LONG else {4: 300, 3: 60, 2: 60}
REPEATED = 60  # programs on 4 ranks that each engine plays a second time


def environment(**more):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("TESSERA_", "OMPI_COMM", "PMI"))}
    env.update(OMP_NUM_THREADS="1", **more)
    return env


def start_threads(ranks, arguments, _folder, **more):
    env = environment(TESSERA_NUM_RANKS=str(ranks), TESSERA_ENGINE="threads", **more)
    return [(arguments, env)]


def start_mpi(ranks, arguments, _folder, **more):
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
    return [(command + arguments, environment(**more))]


def start_gloo(ranks, arguments, folder, **more):
    return [(arguments, environment(
        TESSERA_RANK=str(r), TESSERA_WORLD_SIZE=str(ranks), TESSERA_ENGINE="gloo",
        TESSERA_STORE=str(folder / "store"), **more)) for r in range(ranks)]


START = {"threads": start_threads, "mpi": start_mpi, "gloo": start_gloo}


class Run:
    """What a run left: hashes by (job, step, rank), and errors."""

    def __init__(self, engine, ranks, jobs, **more):
        self.engine = engine
        self.hashes = {}
        self.kinds = collections.Counter()
        self.error = None  # (job, text)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "out").mkdir(mode=0o700)
            arguments = [PROBE, "--out", str(folder / "out")] + jobs
            started = time.monotonic()
            self.output, failed = self._finish(
                START[engine](ranks, arguments, folder, **more))
            self.seconds = time.monotonic() - started
            for rank in range(ranks):
                self._read(folder / "out" / str(rank))
        if failed and self.error is None:
            last = max((key[0] for key in self.hashes), default=0)
            self.error = (last, f"{failed}: {self.output[-2000:]}")

    @staticmethod
    def _finish(commands):
        """Waits for all processes; returns their errors' text and how they failed."""
        with tempfile.TemporaryFile("w+", errors="replace") as log:
            processes = [subprocess.Popen(command, env=env, stdout=log, stderr=log)
                         for command, env in commands]
            failed = ""
            end = time.monotonic() + LIMIT
            for process in processes:
                try:
                    process.wait(max(0.1, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.terminate()
                    try:
                        process.wait(10)
                    except subprocess.TimeoutExpired:
                        process.kill()
                        process.wait()
                    failed = f"not over after {LIMIT} s"
                if process.returncode != 0:
                    failed = failed or f"exit status {process.returncode}"
            log.seek(0)
            return "".join(line for line in log if "Warning:" not in line), failed

    def _read(self, file):
        if not file.exists():
            return
        for line in file.read_text().splitlines():
            fields = line.split(" ", 5)
            if fields[0] == "error":
                self.error = self.error or (int(fields[2]), line)
                continue
            _seed, step, rank, value, job, kind = fields
            self.hashes[int(job), int(step), int(rank)] = value
            if rank == "0":
                self.kinds[kind] += 1


@functools.lru_cache(maxsize=None)
def played(engine, ranks):
    return Run(engine, ranks, ["--seeds", f"0:{PLAYED[ranks]}"])


def differing_job(one, other):
    """Returns the first job that two runs do not agree on, and why; or None."""
    jobs = [(run.error[0], f"{run.engine}: {run.error[1]}")
            for run in (one, other) if run.error]
    failed = min((job for job, _ in jobs), default=None)
    for key in sorted(set(one.hashes) | set(other.hashes)):
        if failed is not None and key[0] >= failed:
            break  # the run that failed has no later ones
        if one.hashes.get(key) != other.hashes.get(key):
            jobs.append((key[0], f"step {key[1]}, rank {key[2]}: {one.engine} "
                         f"{one.hashes.get(key)}, {other.engine} {other.hashes.get(key)}"))
            break
    return min(jobs, default=None)


class Shrinking:
    """Drops steps of a program as long as two engines do not agree on it."""

    def __init__(self, seed, ranks, engines, plants):
        self.seed, self.ranks = seed, ranks
        self.engines, self.plants = engines, plants
        self.rounds = 0

    def first_failure(self, candidates):
        """Plays candidates, lists of steps; returns the first that fails, or None."""
        self.rounds += 1
        play = ";".join(f"{self.seed}:" + ",".join(map(str, steps))
                        for steps in candidates)
        runs = [Run(engine, self.ranks, ["--play", play], **self.plants.get(engine, {}))
                for engine in self.engines]
        found = differing_job(*runs)
        return None if found is None else candidates[found[0]]

    def shrink(self, steps):
        """Returns steps of which none can be left out."""
        size = max(1, len(steps) // 2)
        while len(steps) > 1:
            cut = [steps[:i] + steps[i + size:] for i in range(0, len(steps), size)]
            smaller = self.first_failure([c for c in cut if c])
            if smaller is not None:
                steps = smaller
                size = min(size, max(1, len(steps) // 2))
            elif size == 1:
                break
            else:
                size //= 2
        return steps

    def text(self, steps):
        """Prints the program that is left."""
        command, env = start_threads(
            self.ranks, [PROBE, "--seed", str(self.seed), "--steps",
                         ",".join(map(str, steps))], None)[0]
        done = subprocess.run(command, env=env, capture_output=True, text=True,
                              timeout=LIMIT)
        return done.stdout + "".join(line for line in done.stderr.splitlines(True)
                                     if "Warning:" not in line)


def explain(found, ranks, one, other, plants=None):
    """Shrinks the program of a difference; returns its steps and a report."""
    seed, why = found
    shrinking = Shrinking(seed, ranks, (one, other), plants or {})
    steps = shrinking.shrink(list(range(MAX_STEPS)))
    text = shrinking.text(steps)
    chosen = ",".join(map(str, steps))
    return steps, (f"{one} and {other} on {ranks} ranks, seed {seed}: {why}\n"
                   f"shortest after {shrinking.rounds} rounds, "
                   f"programs_probe --seed {seed} --steps {chosen}:\n{text}")


def process_engines():
    engines = ["gloo"]
    if shutil.which("mpirun") and (BIN.parent / "lib" / "libtessera_mpi.so").exists():
        engines.insert(0, "mpi")
    else:
        print("skipped: MPI, since there is no mpirun or no engine for it")
    return engines


class Programs(unittest.TestCase):
    def agree(self, one, other, ranks):
        found = differing_job(one, other)
        if found is not None:
            self.fail(explain(found, ranks, one.engine, other.engine)[1])

    def test_engines_agree(self):
        for ranks, count in PLAYED.items():
            threads = played("threads", ranks)
            if threads.error:
                self.agree(threads, threads, ranks)
            compared, seconds = 0, [f"threads {threads.seconds:.1f} s"]
            for engine in process_engines():
                run = played(engine, ranks)
                self.agree(threads, run, ranks)
                compared += len(run.hashes)
                seconds.append(f"{engine} {run.seconds:.1f} s")
            self.assertEqual(len({job for job, _, _ in threads.hashes}), count)
            print(f"{ranks} ranks: {count} programs, {sum(threads.kinds.values())} "
                  f"steps of {len(threads.kinds)} kinds, {compared} hashes compared; "
                  + ", ".join(seconds))
            if ranks == 4:
                print("  " + ", ".join(f"{kind} {n}" for kind, n in
                                       sorted(threads.kinds.items())))

    def test_an_engine_repeats_itself(self):
        for engine in ["threads"] + process_engines():
            first = played(engine, 4)
            second = Run(engine, 4, ["--seeds", f"0:{REPEATED}"])
            self.assertIsNone(second.error)
            differ = [key for key, value in second.hashes.items()
                      if first.hashes.get(key) != value]
            self.assertEqual(differ, [], f"{engine}: seed, step, rank")
            print(f"{engine}: {REPEATED} programs twice, {len(second.hashes)} hashes")

    def test_a_planted_difference_is_found_and_shrunk(self):
        seed, step = 7, 5
        plants = {"gloo": {"TESSERA_PLANT": f"{seed}:{step}"}}
        jobs = ["--seeds", f"0:{seed + 3}"]
        found = differing_job(Run("threads", 4, jobs),
                              Run("gloo", 4, jobs, **plants["gloo"]))
        self.assertIsNotNone(found)
        self.assertEqual(found[0], seed)
        self.assertIn(f"step {step}, rank 3", found[1])
        steps, report = explain(found, 4, "threads", "gloo", plants)
        self.assertEqual(steps, [step], report)
        self.assertIn(f"--seed {seed} --steps {step}", report)
        print("planted and found: " + report)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    unittest.main(verbosity=2)
