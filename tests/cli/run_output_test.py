#!/usr/bin/env python3
"""Output and input of programs under tessera run, on every engine.

    python3 tests/cli/run_output_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset. What needs
mpirun is skipped where there is none.
"""

import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from command_line import LIMIT, environment, on_terminal
from run_on_engines import ENGINES, PROCESSES, on, run, shell, words


class OutputTest(unittest.TestCase):

    @on(PROCESSES)
    def test_lines_come_with_their_rank(self, engine):
        script = 'echo out $TESSERA_RANK; echo err $TESSERA_RANK >&2'
        done = shell(engine, script)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         [f"[{r}] out {r}" for r in range(3)])
        self.assertEqual(sorted(done.stderr.splitlines()),
                         [f"[{r}] err {r}" for r in range(3)])

    @on(PROCESSES)
    def test_lines_are_whole_however_they_are_written(self, engine):
        script = ("i=0; while [ $i -lt 60 ]; do printf 'a%s' $TESSERA_RANK; "
                  "printf 'b%s' $i; printf 'c\\n'; i=$((i + 1)); done; printf end")
        lines = shell(engine, script).stdout.splitlines()
        for rank in range(3):
            mine = [x for x in lines if x.startswith(f"[{rank}] ")]
            self.assertEqual(
                mine, [f"[{rank}] a{rank}b{i}c" for i in range(60)] +
                [f"[{rank}] end"])
        self.assertEqual(len(lines), 3 * 61)

    @on(PROCESSES)
    def test_large_output_arrives_complete(self, engine):
        done = shell(engine, "seq 1 40000", ranks=2, options=["--no-prefix"])
        self.assertEqual(len(done.stdout.splitlines()), 80000)

    @on(PROCESSES)
    def test_colour_only_on_a_terminal(self, engine):
        self.assertNotIn("\x1b", shell(engine, "echo hi").stdout)
        self.assertIn("\x1b[", on_terminal(words(engine, ["echo", "hi"])))
        self.assertNotIn("\x1b[", on_terminal(
            words(engine, ["echo", "hi"]), NO_COLOR="1"))

    @on(PROCESSES)
    def test_input_goes_to_rank_0(self, engine):
        done = run(engine, "cat", input="through\n")
        self.assertEqual(done.stdout, "[0] through\n")

    @on(PROCESSES)
    def test_ranks_whose_output_nobody_reads_end(self, engine):
        process = subprocess.Popen(words(engine, ["yes"]), stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=environment())
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=30), 128 + signal.SIGPIPE)

    @on(PROCESSES)
    def test_a_reader_that_stalls_does_not_stop_the_launcher(self, engine):
        with tempfile.TemporaryDirectory() as where:
            # Both streams into one pipe, which stays full.
            process = subprocess.Popen(
                words(engine, ["sh", "-c", "yes"]), stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env=environment(TMPDIR=where))
            process.stdout.readline()
            time.sleep(1)
            process.send_signal(signal.SIGTERM)
            try:
                self.assertEqual(process.wait(timeout=15), 128 + signal.SIGTERM)
            finally:
                process.kill()
                process.stdout.close()
            self.assertEqual(list(pathlib.Path(where).glob("tessera.*")), [])

    @on(PROCESSES)
    def test_ranks_are_ended_while_the_reader_stalls(self, engine):
        with tempfile.TemporaryDirectory() as where:
            script = (f"if [ $TESSERA_RANK = 1 ]; then sleep 1; exit 5; fi; "
                      f"trap 'touch {where}/asked.$TESSERA_RANK; exit 0' TERM; "
                      "yes & while :; do sleep 0.1; done")
            process = subprocess.Popen(
                words(engine, ["sh", "-c", script]), stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env=environment())
            limit = time.monotonic() + 20
            asked = []
            while len(asked) < 2 and time.monotonic() < limit:
                time.sleep(0.1)
                asked = list(pathlib.Path(where).glob("asked.*"))
            process.stdout.close()  # now nobody reads
            self.assertEqual(len(asked), 2)
            self.assertEqual(process.wait(timeout=LIMIT), 5)

    @on(PROCESSES)
    def test_a_slow_reader_gets_all(self, engine):
        process = subprocess.Popen(
            words(engine, ["seq", "1", "60000"], ranks=1, options=["--no-prefix"]),
            stdout=subprocess.PIPE, env=environment())
        time.sleep(2)
        text = process.stdout.read()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=LIMIT), 0)
        self.assertEqual([int(x) for x in text.split()], list(range(1, 60001)))

    @on(ENGINES)
    def test_words_of_the_program_arrive_as_they_are(self, engine):
        odd = [":", "", " ", "'\"", "a\nb", "--", "-n", "\\"]
        done = run(engine, "sh", "-c", 'printf "<%s>" "$@"; echo', "sh", *odd,
                   ranks=1, options=["--no-prefix"])
        self.assertEqual(done.stdout, "".join(f"<{x}>" for x in odd) + "\n",
                         done.stderr)

if __name__ == "__main__":
    unittest.main(verbosity=1)
