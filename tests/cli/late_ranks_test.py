#!/usr/bin/env python3
"""Ranks that come late, and transfers that take long: only the deadline ends a wait.

On every engine one rank of each pair makes its call 12 s after the other, which is
longer than any connection takes; all calls wait side by side. A rank is stopped for
as long in the middle of a transfer. TESSERA_LONG: 25 s and 70 s as well.

  TESSERA_BIN=build/bin tests/cli/late_ranks_test.py
"""
import concurrent.futures
import os
import shutil
import signal
import subprocess
import time
import unittest

from command_line import BIN, TESSERA, environment

PROBE = str(BIN / "late_ranks_probe")
DELAYS = (12, 25, 70) if os.environ.get("TESSERA_LONG") else (12,)
KINDS = int(subprocess.run([PROBE, "kinds"], capture_output=True, text=True,
                           check=True).stdout)
BYTES = 256 << 20  # more than sockets hold
MPIRUN = shutil.which("mpirun")
ENGINES = ("gloo", *(("mpi",) if MPIRUN else ()))


def launch(engine, ranks, *arguments):
    return [TESSERA, "run", "-n", str(ranks), "--engine", engine, "--", PROBE,
            *arguments]


def commands(delay):
    yield "threads", [PROBE, str(delay), "threads"]
    for engine in ENGINES:
        yield engine, launch(engine, 2 * KINDS, str(delay))


def run(command, limit):
    return subprocess.run(command, capture_output=True, text=True, timeout=limit,
                          env=environment(OMP_NUM_THREADS="1"))


def stop_in_transfer(engine, seconds):
    """Stops rank 1 for some seconds just after the exchange has begun."""
    with subprocess.Popen(
            launch(engine, 2, "stopped", str(BYTES)), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
            env=environment(OMP_NUM_THREADS="1")) as job:
        try:
            lines = []
            while sum("begun" in line for line in lines) < 2:
                line = job.stdout.readline()
                if not line:
                    break
                lines.append(line)
            ranks = ranks_below(job.pid)
            victim = next(r for r in ranks if rank_of(r) == 1)
            os.kill(victim, signal.SIGSTOP)
            begin = time.monotonic()
            time.sleep(seconds)
            os.kill(victim, signal.SIGCONT)
            out, errors = job.communicate(timeout=120)
        finally:
            job.kill()
    return job.returncode, "".join(lines) + out, errors, time.monotonic() - begin


def ranks_below(pid):
    """Returns the processes of the probe below a process."""
    found, front = [], [pid]
    while front:
        children = []
        for parent in front:
            with open(f"/proc/{parent}/task/{parent}/children") as file:
                children += [int(c) for c in file.read().split()]
        found += [c for c in children
                  if os.readlink(f"/proc/{c}/exe") == os.path.realpath(PROBE)]
        front = children
    return found


def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        names = dict(v.split(b"=", 1) for v in file.read().split(b"\0") if b"=" in v)
    return int(names.get(b"OMPI_COMM_WORLD_RANK", names.get(b"TESSERA_RANK", b"-1")))


class LateRanksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Begins everything at once: it is nearly all sleep."""
        cls.pool = concurrent.futures.ThreadPoolExecutor(32)
        cls.late = {(name, delay): cls.pool.submit(run, command, delay + 100)
                    for delay in DELAYS for name, command in commands(delay)}
        cls.stopped = {(engine, delay): cls.pool.submit(stop_in_transfer, engine, delay)
                       for delay in DELAYS for engine in ENGINES}

    @classmethod
    def tearDownClass(cls):
        cls.pool.shutdown()

    def test_every_call_waits_for_a_late_rank(self):
        for (engine, delay), future in self.late.items():
            with self.subTest(engine=engine, delay=delay):
                done = future.result()
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(done.stdout.count("right: "), KINDS, done.stdout)

    def test_a_transfer_may_take_long(self):
        for (engine, delay), future in self.stopped.items():
            with self.subTest(engine=engine, delay=delay):
                status, out, errors, seconds = future.result()
                self.assertEqual(status, 0, out + errors)
                self.assertEqual(out.count("right"), 2, out + errors)
                self.assertGreaterEqual(seconds, delay)


if __name__ == "__main__":
    unittest.main()
