#!/usr/bin/env python3
"""The collective and failure suites of comm_test on ranks that are processes,
and what a job under mpirun does when one of them dies."""
import os
import re
import shutil
import signal
import subprocess
import time
import unittest

BIN = os.environ["TESSERA_BIN"]
MPIRUN = shutil.which("mpirun")
SUITES = (
    "Ranks/*:WorkTest*:CommunicatorTest*:MismatchTest*:FailureTest*:WorldTest*:"
    "CommLog*:DeviceMesh*:Sizes*"
)


def start(engine, ranks, *program):
    command = [f"{BIN}/tessera", "run", "--engine", engine, "-n", str(ranks), "--"]
    environment = dict(os.environ, OMP_NUM_THREADS="1", TESSERA_RUN_RANKS="processes")
    return subprocess.Popen(
        command + list(program), env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Suites(unittest.TestCase):
    def passes(self, engine, ranks):
        began = time.monotonic()
        job = start(engine, ranks, f"{BIN}/comm_test", f"--gtest_filter={SUITES}",
                    "--gtest_color=no")
        output, _ = job.communicate(timeout=180)
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

    @unittest.skipUnless(MPIRUN, "there is no mpirun")
    def test_mpi(self):
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                self.passes("mpi", ranks)

    def test_gloo(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                self.passes("gloo", ranks)


class Deaths(unittest.TestCase):
    @unittest.skipUnless(MPIRUN, "there is no mpirun")
    def test_mpirun_ends_the_job_and_names_the_rank(self):
        for victim in (0, 2, 3):
            command = [MPIRUN, "--oversubscribe", "-n", "4", f"{BIN}/endless_probe"]
            if os.geteuid() == 0:
                command.insert(1, "--allow-run-as-root")
            job = subprocess.Popen(
                command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=dict(os.environ, OMP_NUM_THREADS="1"))
            processes = {}
            while len(processes) < 4:
                line = job.stdout.readline()
                self.assertTrue(line, "the job ended early")
                said = re.search(r"rank (\d) is process (\d+)", line)
                if said:
                    processes[int(said[1])] = int(said[2])
            time.sleep(0.1 * victim)
            killed = time.monotonic()
            os.kill(processes[victim], signal.SIGKILL)
            output, _ = job.communicate(timeout=30)
            took = time.monotonic() - killed
            print(f"mpirun: the job is over {took:.2f} s after the death of rank "
                  f"{victim}", flush=True)
            self.assertLess(took, 5)
            self.assertNotEqual(job.returncode, 0)
            self.assertRegex(output, rf"rank {victim}\b")


if __name__ == "__main__":
    unittest.main(verbosity=2)
