#!/usr/bin/env python3
"""What tessera run says and does when a rank, or a job, fails.

    python3 tests/cli/run_failures_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset. What needs
mpirun is skipped where there is none.
"""

import signal
import tempfile
import time
import unittest

from command_line import PROBE, call, environment
from run_on_engines import ENGINES, MPIRUN, PROCESSES, on, run, shell


class FailureTest(unittest.TestCase):

    @on(PROCESSES)
    def test_a_rank_that_throws_is_named_by_all(self, engine):
        done = run(engine, PROBE, "1")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("[1] planted failure", done.stderr)
        for survivor in (0, 2):
            self.assertRegex(done.stderr,
                             rf"\[{survivor}\] .*rank 1 failed: planted failure")
        self.assertRegex(done.stderr,
                         r"tessera run: ranks? [012 ]*exited with status 3")

    @on(ENGINES)
    def test_an_exception_that_leaves_main_is_one_message_per_rank(self, engine):
        for kind in ("uncaught", "uncaught_std"):
            done = run(engine, PROBE, kind, "1")
            self.assertEqual(done.returncode, 1, done.stderr)
            for word in ("terminate called", "what()", "frame #",
                         "Exception raised from"):
                self.assertNotIn(word, done.stderr)
            said = [line for line in done.stderr.splitlines() if "tessera: " in line]
            if engine == "threads":  # one process, one message
                self.assertEqual(len(said), 1, done.stderr)
                self.assertRegex(said[0], r"planted failure.*rank 1|"
                                          r"rank 1 of 3 failed: planted failure")
                continue
            ranks = [line[:3] for line in said]
            self.assertEqual(len(set(ranks)), len(ranks), done.stderr)
            self.assertIn("[1]", ranks)
            for line in said:  # the survivors name both ranks, theirs and the one
                self.assertRegex(line, rf"planted failure.*\(rank {line[1]} of 3\)")
                self.assertIn("[1]" if line[1] == "1" else "rank 1 failed", line)

    @on(ENGINES)
    def test_a_backtrace_is_there_for_who_asks(self, engine):
        done = run(engine, PROBE, "uncaught", "1",
                   env=environment(TESSERA_BACKTRACE="1"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"tessera: .*planted failure")
        self.assertIn("Exception raised from", done.stderr)
        self.assertIn("frame #", done.stderr)

    def test_a_program_alone_says_the_same(self):
        done = call([PROBE, "uncaught", "0"])
        self.assertEqual((done.returncode, done.stderr),
                         (1, "tessera: planted failure\n"))
        done = call([PROBE, "uncaught", "0"], environment(TESSERA_BACKTRACE="1"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("Exception raised from", done.stderr)

    def test_an_engine_that_is_not_there_is_an_error(self):
        for name, words in (("foo", "must be threads, gloo, mpi or simulated; got 'foo'"),
                            ("gloo", "nothing has started this process as one of several"),
                            ("mpi", "nothing has started this process as one of several")):
            with self.subTest(engine=name):
                done = call([PROBE], environment(TESSERA_ENGINE=name))
                self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
                self.assertIn(words, done.stderr)

    @on(PROCESSES)
    def test_a_rank_that_exits_is_the_exit_code(self, engine):
        done = run(engine, PROBE, "exit", "1")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("rank 1 exited with status 7", done.stderr)

    @on(PROCESSES)
    def test_a_rank_that_is_killed_is_named(self, engine):
        begin = time.monotonic()
        done = run(engine, PROBE, "kill", "1")
        self.assertEqual(done.returncode, 128 + signal.SIGKILL, done.stderr)
        self.assertIn(
            "tessera run: rank 1 was ended by signal 9 (Killed); ending the others",
            done.stderr)
        self.assertLess(time.monotonic() - begin, 20)
        if engine == "gloo":
            for survivor in (0, 2):
                self.assertRegex(done.stderr, rf"\[{survivor}\] .*rank 1")

    @on(PROCESSES)
    def test_others_that_go_on_are_ended(self, engine):
        script = ('trap "echo asked; exit 0" TERM; [ $TESSERA_RANK = 1 ] && exit 5; '
                  "while :; do sleep 0.1; done")
        begin = time.monotonic()
        done = shell(engine, script)
        self.assertEqual(done.returncode, 5)
        self.assertEqual(done.stdout.count("asked"), 2)
        self.assertEqual(done.stderr, "tessera run: rank 1 exited with status 5; "
                                      "ending the others\n")
        self.assertLess(time.monotonic() - begin, 20)

    @on(PROCESSES)
    def test_others_that_do_not_want_to_end_are_killed(self, engine):
        script = ('trap "" TERM; [ $TESSERA_RANK = 0 ] && kill -9 $$; '
                  "while :; do sleep 0.1; done")
        begin = time.monotonic()
        done = shell(engine, script, ranks=2)
        self.assertEqual(done.returncode, 137)
        self.assertLess(time.monotonic() - begin, 20)

    @on(ENGINES)
    def test_what_cannot_be_started_is_said_once(self, engine):
        with tempfile.NamedTemporaryFile("w") as plain:
            for program, code in (("/no/such", 127), (plain.name, 126)):
                done = run(engine, program)
                self.assertEqual(done.returncode, code)
                self.assertEqual(done.stderr.count("cannot execute"), 1)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_without_mpirun_the_message_says_what_to_install(self):
        done = run("mpi", "true", env=environment(PATH="/nonexistent"))
        self.assertEqual(done.returncode, 2)
        for word in ("mpirun", "openmpi-bin"):
            self.assertIn(word, done.stderr)

    @unittest.skipUnless(MPIRUN, "mpirun is not installed")
    def test_a_folder_that_cannot_be_preloaded_from_is_refused(self):
        with tempfile.TemporaryDirectory(prefix="a b") as where:
            done = run("mpi", "true", env=environment(TMPDIR=where))
        self.assertEqual(done.returncode, 2)
        self.assertIn("TMPDIR", done.stderr)

    @unittest.skipUnless(MPIRUN, "mpirun is not installed")
    def test_an_end_of_mpirun_just_after_a_failure_hides_neither(self):
        with tempfile.TemporaryDirectory() as where:
            script = (f"cd {where}; if [ $TESSERA_RANK = 0 ]; then echo $$ > new; "
                      "while [ ! -e up ]; do sleep 0.01; done; mv new pid; exit 5; fi; "
                      "touch up; while [ ! -e pid ]; do sleep 0.01; done; "
                      "while kill -0 $(cat pid) 2>&-; do sleep 0.01; done; sleep 0.1; "
                      "read -r x x x mpirun x < /proc/$PPID/stat; kill -9 $mpirun; "
                      "sleep 20")
            done = shell("mpi", script, ranks=2)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("tessera run: rank 0 exited with status 5", done.stderr)
        self.assertIn("mpirun ended with status 137 before the ranks", done.stderr)

    def test_too_many_processes_are_refused(self):
        done = run("gloo", "true", ranks=100000)
        self.assertEqual(done.returncode, 2)
        self.assertIn("at most", done.stderr)

if __name__ == "__main__":
    unittest.main(verbosity=1)
