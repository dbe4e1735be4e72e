#!/usr/bin/env python3
"""tessera run with ranks that are threads, and tessera doctor.

    python3 tests/cli/cli_run_and_doctor_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""

import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from command_line import LIMIT, PROBE, TESSERA, call, environment, tessera


class RunTest(unittest.TestCase):

    def run_shell(self, script, *args, ranks="2"):
        return tessera("run", "-n", ranks, "--", "sh", "-c", script, *args)

    def test_exit_status_is_the_programs(self):
        for code in (0, 1, 2, 77, 255):
            self.assertEqual(self.run_shell(f"exit {code}").returncode, code)

    def test_a_signal_gives_128_plus_its_number(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
            done = self.run_shell(f"ulimit -c 0; kill -{int(number)} $$")
            self.assertEqual(done.returncode, 128 + number)
            self.assertIn(f"signal {int(number)}", done.stderr)

    def test_the_program_learns_ranks_and_engine(self):
        done = self.run_shell("echo $TESSERA_NUM_RANKS $TESSERA_ENGINE", ranks="3")
        self.assertEqual(done.stdout, "3 threads\n")

    def test_arguments_arrive_unchanged(self):
        script = 'for a; do printf "[%s]" "$a"; done'
        done = self.run_shell(script, "zero", "--json", "-n", "a b", "", "--")
        self.assertEqual(done.stdout, "[--json][-n][a b][][--]")

    def test_input_is_the_programs(self):
        done = tessera("run", "-n", "1", "--", "cat", input="through\n")
        self.assertEqual(done.stdout, "through\n")

    def test_a_program_that_is_missing_is_127(self):
        self.assertEqual(tessera("run", "-n", "1", "--", "/no/such").returncode, 127)

    def test_a_file_that_is_no_program_is_126(self):
        with tempfile.NamedTemporaryFile("w") as plain:
            done = tessera("run", "-n", "1", "--", plain.name)
        self.assertEqual(done.returncode, 126)
        self.assertIn("Permission denied", done.stderr)

    def test_signals_sent_to_it_reach_the_program(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            name = number.name[3:]
            script = (f'trap "echo got; exit 9" {name}; echo up; '
                      "while :; do sleep 0.05; done")
            process = subprocess.Popen(
                [TESSERA, "run", "-n", "2", "--", "sh", "-c", script],
                stdout=subprocess.PIPE, text=True, env=environment())
            self.assertEqual(process.stdout.readline(), "up\n")
            process.send_signal(number)
            self.assertEqual(process.stdout.readline(), "got\n")
            self.assertEqual(process.wait(timeout=LIMIT), 9)
            process.stdout.close()

    def test_a_tessera_program_runs_on_that_many_ranks(self):
        for ranks in (1, 2, 4):
            done = tessera("run", "-n", str(ranks), "--", PROBE)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(
                done.stdout,
                f"{ranks} ranks, sum {ranks * (ranks - 1) // 2}, engine threads\n")

    def test_a_rank_that_throws_ends_the_program(self):
        done = tessera("run", "-n", "3", "--", PROBE, "1")
        self.assertEqual(done.returncode, 3)
        self.assertIn("planted failure", done.stderr)
        self.assertIn("rank 1", done.stderr)


class DoctorTest(unittest.TestCase):

    def test_a_working_machine_is_usable(self):
        done = tessera("doctor")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for word in ("libtorch", "engine threads", "sharded tensors", "cuda",
                     "cpu", "engine mpi", "engine gloo"):
            self.assertIn(word, done.stdout)
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_json_is_one_line(self):
        self.assertEqual(tessera("doctor", "--json").stdout.count("\n"), 1)

    def test_json_lists_every_check(self):
        report = json.loads(tessera("doctor", "--json").stdout)
        self.assertTrue(report["usable"])
        for check in report["checks"]:
            self.assertIn(check["status"], ("ok", "warn", "fail"))
            if check["status"] != "ok":
                self.assertTrue(check["advice"], check)

    def test_absent_mpi_is_a_warning_with_advice(self):
        done = call([TESSERA, "doctor", "--json"], environment(PATH="/nonexistent"))
        self.assertEqual(done.returncode, 0)
        checks = {c["name"]: c for c in json.loads(done.stdout)["checks"]}
        self.assertEqual(checks["engine mpi"]["status"], "warn")


class ExecutablesTest(unittest.TestCase):
    """`tessera` alone in a folder, or with another executable beside it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tessera = shutil.copy(TESSERA, self.folder)

    def put_beside(self, name, script):
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)

    def checks(self):
        done = call([self.tessera, "doctor", "--json"])
        report = json.loads(done.stdout)
        self.assertEqual(report["usable"], done.returncode == 0)
        return {c["name"]: c for c in report["checks"]}, done.stderr

    def test_a_missing_executable_is_named(self):
        for command, name in (("ops", "tessera-torch"), ("demo", "tessera-demo"),
                              ("bench", "tessera-bench")):
            with self.subTest(command):
                done = call([self.tessera, command, "--help"])
                self.assertEqual(done.returncode, 1)
                self.assertEqual(
                    done.stderr,
                    f"tessera {command}: cannot start {self.folder.resolve() / name}: "
                    "No such file or directory; 'make build' makes it\n")

    def test_commands_without_libtorch_work_alone(self):
        for typed in (["--help"], ["--version"], ["show", "[4] S(0) @ mesh(2)"],
                      ["run", "-n", "2", "--", "true"]):
            self.assertEqual(call([self.tessera, *typed]).returncode, 0, typed)

    def test_the_other_executable_gets_the_words_and_ends_the_command(self):
        self.put_beside("tessera-bench", 'printf "[%s]" "$@"; exit 7')
        done = call([self.tessera, "bench", "comm", "--python", "a b", ""])
        self.assertEqual(done.stdout, "[bench][comm][--python][a b][]")
        self.assertEqual(done.returncode, 7)

    def test_signals_reach_the_other_executable(self):
        self.put_beside("tessera-demo", 'trap "exit 9" TERM; echo up; '
                        "while :; do sleep 0.05; done")
        with subprocess.Popen([self.tessera, "demo"], stdout=subprocess.PIPE,
                              text=True, env=environment()) as process:
            self.assertEqual(process.stdout.readline(), "up\n")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=LIMIT), 9)

    def test_doctor_says_that_libtorch_was_not_checked(self):
        checks, _ = self.checks()
        self.assertEqual(checks["build"]["status"], "ok")
        self.assertEqual(checks["libtorch"]["status"], "fail")
        self.assertIn("tessera-torch: No such file", checks["libtorch"]["found"])
        self.assertEqual(checks["engine gloo"]["status"], "warn")

    def test_doctor_reports_a_libtorch_that_cannot_be_loaded_or_crashes(self):
        self.put_beside("tessera-torch", "echo 'libtorch.so: cannot open' >&2; exit 127")
        checks, _ = self.checks()
        self.assertEqual(checks["libtorch"]["status"], "fail")
        self.assertEqual(checks["libtorch"]["found"], "libtorch.so: cannot open")
        self.assertIn("LD_LIBRARY_PATH", checks["libtorch"]["advice"])
        self.put_beside("tessera-torch", "ulimit -c 0; kill -SEGV $$")
        checks, _ = self.checks()
        self.assertIn("tessera-torch was ended by signal 11",
                      checks["libtorch"]["found"])

    def test_doctor_passes_on_what_libtorch_says_beside_its_findings(self):
        self.put_beside("tessera-torch", "echo a warning >&2; "
                        """echo '[["libtorch",1,"old","renew it"]]'""")
        checks, said = self.checks()
        self.assertEqual(
            checks["libtorch"], {"name": "libtorch", "status": "warn",
                                 "found": "old", "advice": "renew it"})
        self.assertIn("a warning", said)


if __name__ == "__main__":
    unittest.main(verbosity=1)
