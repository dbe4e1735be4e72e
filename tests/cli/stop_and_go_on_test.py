#!/usr/bin/env python3
"""Example 08 on SIGTERM: all ranks save behind one step and end with 75; started again
it goes on as if it had not stopped, on the same ranks bit for bit.

    python3 tests/cli/stop_and_go_on_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from command_line import BIN, LIMIT, environment
from run_on_engines import run, words

EXAMPLE = str(BIN / "08_stop_and_go_on")
SAVED_START_AGAIN = 75
FOREVER = "1000000"


def losses(text):
    """The loss of each step, as it was printed: with all digits."""
    return {int(step): loss for step, loss in
            re.findall(r"^step (\d+) loss (\S+)$", text, re.MULTILINE)}


def rank_process(parent, rank):
    """The process of a rank below `tessera run`."""
    for folder in pathlib.Path("/proc").iterdir():
        try:
            status = (folder / "stat").read_text().rpartition(")")[2].split()
            variables = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if (command[0].decode() == EXAMPLE and status[1] == str(parent)
                and f"TESSERA_RANK={rank}".encode() in variables):
            return int(folder.name)
    raise AssertionError(f"rank {rank} of {parent} is not there")


class StopTest(unittest.TestCase):

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def stop(self, engine, ranks, find=None, at=7):
        """Starts a job, sends SIGTERM when it has printed a step, and returns what it
        printed. `find` names the process that gets the signal, by that of the job."""
        job = subprocess.Popen(
            words(engine, [EXAMPLE, self.folder, FOREVER], ranks, ["--no-prefix"]),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment())
        printed = ""
        try:
            for line in job.stdout:
                printed += line
                if line.startswith(f"step {at} "):
                    os.kill(find(job.pid) if find else job.pid, signal.SIGTERM)
            error = job.stderr.read()
            code = job.wait(LIMIT)
        finally:
            job.kill()
            job.stdout.close()
            job.stderr.close()
        self.assertEqual(code, SAVED_START_AGAIN, printed[-500:] + error)
        steps = losses(printed)
        last = max(steps)
        self.assertEqual(sorted(steps), list(range(1, last + 1)))
        self.assertIn(f"SIGTERM: saved {self.folder}/step_{last:012}\n", printed)
        self.assertTrue(printed.endswith(f"step_{last:012}\n"), "nothing comes after")
        return steps

    def go_on(self, engine, ranks, after, steps, folder):
        done = run(engine, EXAMPLE, folder, str(steps), ranks=ranks,
                   options=["--no-prefix"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"goes on after step {after}\n", done.stdout)
        self.assertTrue(done.stdout.endswith("done\n"))
        return losses(done.stdout)

    def without_a_stop(self, ranks, steps):
        """On threads: every engine computes the same bits."""
        with tempfile.TemporaryDirectory() as folder:
            return losses(run("threads", EXAMPLE, folder, str(steps),
                              ranks=ranks).stdout)

    def check(self, engine, ranks, find=None, other=None):
        before = self.stop(engine, ranks, find)
        last = max(before)
        steps = last + 20  # into other epochs: one is six steps
        want = self.without_a_stop(ranks, steps)
        self.assertEqual(len(want), steps)
        self.assertEqual(before, {step: want[step] for step in before})
        if other:
            shutil.copytree(self.folder, self.folder + "/copy")
            after = self.go_on("threads", other, last, steps, self.folder + "/copy")
            self.assertEqual(sorted(after), list(range(last + 1, steps + 1)))
            for step, loss in after.items():
                self.assertAlmostEqual(float(loss), float(want[step]), delta=1e-12)
        after = self.go_on(engine, ranks, last, steps, self.folder)
        self.assertEqual(sorted(after), list(range(last + 1, steps + 1)))
        self.assertEqual(after, {step: want[step] for step in after})

    def test_it_goes_on_bit_for_bit_and_on_three_ranks_to_1e_12(self):
        self.check("threads", 4, other=3)

    def test_one_process_that_hears_of_it_stops_all(self):
        self.check("gloo", 3, find=lambda job: rank_process(job, 2))

    @unittest.skipUnless(os.environ.get("TESSERA_LONG") and shutil.which("mpirun"),
                         "TESSERA_LONG is not set, or there is no mpirun")
    def test_processes_hear_of_it_each_at_its_own_time(self):
        self.check("mpi", 3)

    def test_it_stops_and_goes_on_again_and_again(self):
        first = max(self.stop("threads", 2))
        job = subprocess.Popen(
            words("threads", [EXAMPLE, self.folder, FOREVER], 2, []),
            stdout=subprocess.PIPE, text=True, env=environment())
        with job:
            self.assertEqual(job.stdout.readline(), f"goes on after step {first}\n")
            job.send_signal(signal.SIGTERM)
            job.send_signal(signal.SIGTERM)
            printed = job.stdout.read()
        self.assertEqual(job.returncode, SAVED_START_AGAIN)
        last = max(losses(printed))
        want = self.without_a_stop(2, last + 3)
        after = self.go_on("threads", 2, last, last + 3, self.folder)
        self.assertEqual(after, {step: want[step] for step in after})
        kept = sorted(p.name for p in pathlib.Path(self.folder).glob("step_*"))
        self.assertEqual(kept, [f"step_{n:012}" for n in (last, last + 3)])


if __name__ == "__main__":
    unittest.main()
