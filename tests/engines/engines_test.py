#!/usr/bin/env python3
"""The collective and failure suites of comm_test on ranks that are processes,
and what a job under mpirun does when one of them dies."""
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time
import unittest

BIN = os.environ["TESSERA_BIN"]
MPIRUN = shutil.which("mpirun")
HAS_MPI = MPIRUN and (
    pathlib.Path(BIN).parent / "lib" / "libtessera_mpi.so").exists()
LIMIT_S = 180  # for one run of the suites
# Not Flight*: those suites are of ranks that are threads.
SUITES = (
    "Ranks/*:WorkTest*:CommunicatorTest*:MismatchTest*:FailureTest*:WorldTest*:"
    "CommLog*:DeviceMesh*:Sizes*:RankGuard*"
)


def end(job):
    """Ends a job with all its processes: mpirun ends its own ranks when it is
    asked to, others are in the job's process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(job.pid, number)
            job.wait(timeout=10)


@contextlib.contextmanager
def started(command, **variables):
    job = subprocess.Popen(
        command, env=dict(os.environ, OMP_NUM_THREADS="1", **variables), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    over = False
    try:
        yield job
        over = job.poll() is not None
    finally:
        if not over:
            end(job)
        job.stdout.close()


class Suites(unittest.TestCase):
    def passes(self, engine, ranks):
        began = time.monotonic()
        command = [f"{BIN}/tessera", "run", "--engine", engine, "-n", str(ranks), "--",
                   f"{BIN}/comm_test", f"--gtest_filter={SUITES}", "--gtest_color=no"]
        with started(command, TESSERA_RUN_RANKS="processes") as job:
            output, _ = job.communicate(timeout=LIMIT_S)
        failed = "\n".join(
            line for line in output.splitlines()
            if "FAILED" in line or "Failure" in line or "missing in" in line)
        self.assertEqual(job.returncode, 0, failed or output[-3000:])
        counts = {int(n) for n in re.findall(r"PASSED +\] (\d+) tests", output)}
        self.assertEqual(len(re.findall(r"PASSED +\]", output)), ranks)
        print(f"{engine}, {ranks} ranks: {sorted(counts)} tests pass on each rank, "
              f"{time.monotonic() - began:.0f} s", flush=True)
        # Tests for more ranks than there are processes are skipped.
        self.assertGreater(min(counts), {1: 12, 2: 50, 3: 70}.get(ranks, 90))

    @unittest.skipUnless(HAS_MPI, "there is no mpirun or no engine for it")
    def test_mpi(self):
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                self.passes("mpi", ranks)

    def test_gloo(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                self.passes("gloo", ranks)


class Deaths(unittest.TestCase):
    def processes_of(self, job, ranks):
        """Waits until all ranks have said which process they are."""
        processes = {}
        while len(processes) < ranks:
            line = job.stdout.readline()
            self.assertTrue(line, "the job ended early")
            said = re.search(r"rank (\d) is process (\d+)", line)
            if said:
                processes[int(said[1])] = int(said[2])
        return processes

    @unittest.skipUnless(HAS_MPI, "there is no mpirun or no engine for it")
    def test_mpirun_ends_the_job_and_names_the_rank(self):
        # 100 random moments in the long form.
        trials = 100 if os.environ.get("TESSERA_LONG") else 3
        choice = random.Random(5)
        times = []
        for _ in range(trials):
            victim = choice.randrange(4)
            command = [MPIRUN, "--oversubscribe", "-n", "4", f"{BIN}/endless_probe"]
            if os.geteuid() == 0:
                command.insert(1, "--allow-run-as-root")
            with started(command) as job:
                processes = self.processes_of(job, 4)
                time.sleep(choice.random() * 0.3)
                killed = time.monotonic()
                os.kill(processes[victim], signal.SIGKILL)
                output, _ = job.communicate(timeout=30)
                times.append(time.monotonic() - killed)
            self.assertLess(times[-1], 5)
            self.assertNotEqual(job.returncode, 0)
            # Not what the probe says, but mpirun.
            self.assertRegex(output, rf"process rank {victim} .*signal 9")
        print(f"mpirun: {trials} kills, the job is over after at most "
              f"{max(times):.2f} s", flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
