#!/usr/bin/env python3
"""The tessera command, run as users run it.

    python3 tests/process/cli_test.py            run the tests
    python3 tests/process/cli_test.py --refresh  write tests/golden/cli anew, and
                                                 the console blocks of docs/10_cli.md

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""

import json
import os
import pathlib
import pty
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "bin"))
TESSERA = str(BIN / "tessera")
GOLDEN = ROOT / "tests" / "golden" / "cli"
DOCS = ROOT / "docs" / "10_cli.md"
LIMIT = 120  # seconds for any command

# name -> arguments as typed in a shell. Names ending in _ascii run under LC_ALL=C.
GOLDEN_CASES = {
    "show_2d": 'show --mesh dp=2,tp=4 --shape 8x16 --placements "S(0) S(1)"',
    "show_2d_ascii": 'show --mesh 2x4 --shape 8x16 --placements "S(0) S(1)"',
    "show_text": 'show "f32[8, 16] S(0) R @ mesh(dp=2, tp=4)"',
    "show_uneven": 'show "[5, 6] S(0) S(1) @ mesh(4, 2)"',
    "show_nested": 'show "[10] S(0) S(0) @ mesh(dp=2, tp=2)"',
    "show_strided": 'show "[8, 6] SS(0,2) S(0) @ mesh(dp=2, tp=2)"',
    "show_strided_table": 'show --table "[8, 6] SS(0,2) R @ mesh(dp=2, tp=2)"',
    "show_turns": 'show "[8] S(0)[1] S(0)[0] @ mesh(dp=2, tp=2)"',
    "show_ragged": 'show "[8, 4] RS(0,[3,0,5]) @ mesh(3)"',
    "show_partial": 'show "[4, 4] P(sum) S(1) @ mesh(dp=2, tp=2)"',
    "show_partial_copies": 'show "[6] R P(max) S(0) @ mesh(2, 2, 3)"',
    "show_replicated": 'show "[4, 4] R R @ mesh(dp=2, tp=4)"',
    "show_3d": 'show --mesh 2x2x2 --shape 4x6x8 --placements "S(0) S(1) S(2)"',
    "show_0d": 'show "[] R @ mesh(4)"',
    "show_empty": 'show "[0, 4] S(0) @ mesh(2)"',
    "show_more_ranks_than_rows": 'show "[3] S(0) @ mesh(5)"',
    "show_large": 'show --mesh 256x256 --shape 1048576x1048576 --placements "S(0) S(1)"',
    "show_large_ascii": 'show --mesh 256x256 --shape 1048576x1048576 --placements "S(0) S(1)"',
    "show_many_ranks_table": 'show --mesh 1024 --shape 64x64x64 --placements "S(0)"',
    "show_1d_too_wide": 'show "[100] S(0) @ mesh(20)"',
    "show_many_copies": 'show --mesh 512x64 --shape 6 --placements "R S(0)"',
    "show_rank": 'show "[8, 6] SS(0,2) P(sum) @ mesh(dp=2, tp=2)" --rank 3',
    "show_rank_empty": 'show "[3] S(0) @ mesh(5)" --rank 4',
    "show_json": 'show "[5, 4] S(0) R @ mesh(dp=2, tp=2)" --json',
    "show_rank_json": 'show --mesh 256x256 --shape 1048576x1048576 '
                      '--placements "S(0) S(1)" --rank 65535 --json',
    "show_xla": 'show "[8, 16] S(1) S(0) @ mesh(dp=2, tp=4)" --xla',
    "show_xla_rank": 'show "[4, 4] P(max) S(1) @ mesh(2, 2; ranks 3 1 2 0)" '
                     '--rank 2 --xla',
    "show_xla_json": 'show "[4] S(0) R @ mesh(dp=2, tp=2)" --xla --json',
    "ops_name": "ops aten::addmm",
    "ops_form": "ops aten::mm --form factors --json",
    "ops_rules": "ops --rules aten::baddbmm",
    "ops_none": "ops no_such_operator",
    "error_ops_form": "ops --form pointwide",
    "plan_other_mesh": 'plan --mesh dp=2,tp=2 --to-mesh 3 --shape 6x4 '
                       '--from "P(sum) S(0)" --to "S(1)"',
    "plan_cut_first": 'plan --mesh dp=2,tp=4 --shape 1024x1024 --dtype f32 '
                      '--from "S(0) R" --to "R S(1)"',
    "plan_exchange": 'plan --mesh 2x4 --shape 1024x1024 --dtype bf16 '
                     '--from "S(0) S(0)" --to "S(1) S(1)"',
    "plan_nothing": 'plan --mesh 4 --shape 8 --from "S(0)" --to "S(0)"',
    "plan_json": 'plan --mesh dp=2,tp=4 --shape 1024x1024 '
                 '--from "S(0) R" --to "R S(1)" --json',
    "error_plan_dtype": 'plan --mesh 2 --shape 8 --dtype f33 --from R --to R',
    "error_plan_placement": 'plan --mesh 2 --shape 8 --from R --to "S(1)"',
    "error_no_subcommand": "",
    "error_unknown_subcommand": "shwo",
    "error_missing_part": "show --mesh 2x4 --shape 8x16",
    "error_both_forms": 'show "[4] R @ mesh(2)" --mesh 2',
    "error_placement_text": 'show --mesh 2 --shape 8 --placements "Q(0)"',
    "error_placement_count": 'show --mesh 2x4 --shape 8x16 --placements "S(0)"',
    "error_dim_range": 'show --mesh 2 --shape 8 --placements "S(1)"',
    "error_mesh_text": 'show --mesh 2xx4 --shape 8 --placements "R R"',
    "error_shape_text": 'show --mesh 2 --shape 8y --placements "R"',
    "error_ragged_sum": 'show "[8] RS(0,[3,3]) @ mesh(2)"',
    "error_rank_outside": 'show "[8] S(0) @ mesh(2)" --rank 2',
    "error_rank_negative": 'show "[8] S(0) @ mesh(2)" --rank -1',
    "error_xla_uneven": 'show "[5] S(0) S(0) @ mesh(2, 2)" --xla',
    "error_xla_ragged": 'show "[8] RS(0,[3,5]) @ mesh(2)" --xla --json',
    "error_run_no_program": "run -n 2",
    "error_run_no_dashes": "run -n 2 ./train --steps 3",
    "error_run_zero_ranks": "run -n 0 -- true",
    "error_run_engine": "run -n 2 --engine nccl -- true",
    "error_run_not_found": "run -n 2 -- no-such-program",
}

# Errors that the command line parser words: arguments and what must be named.
PARSER_ERRORS = [
    ("show --mseh 2x4", ["--mseh", "tessera show --help"]),
    ('show "[8] S(0) @ mesh(2)" --rank two', ["--rank", "two"]),
    ("plan --mesh 2 --shape 8 --from R", ["--to", "required"]),
    ("ops --rules --json", ["--rules", "--json"]),
    ("run -- true", ["--ranks", "required"]),
    ("run -n two -- true", ["--ranks", "two"]),
    ("doctor --verbose", ["--verbose"]),
    ("bench train --ranks 3", ["--ranks", "3"]),
    ("bench train --engine nccl", ["--engine", "nccl"]),
]


def environment(ascii_only=False):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("LC_", "LANG", "TESSERA_NUM", "TESSERA_ENG"))}
    env["LC_ALL"] = "C" if ascii_only else "C.UTF-8"
    return env


def tessera(*args, ascii_only=False, **more):
    return subprocess.run([TESSERA, *args], capture_output=True, text=True,
                          encoding="utf-8", timeout=LIMIT,
                          env=environment(ascii_only), **more)


def transcript(name):
    """Returns what a user sees: the command, both streams, the exit code."""
    typed = GOLDEN_CASES[name]
    done = tessera(*shlex.split(typed), ascii_only=name.endswith("_ascii"))
    text = f"$ tessera {typed}".rstrip() + "\n" + done.stdout
    if done.stderr:
        text += "[stderr]\n" + done.stderr
    return text + f"[exit {done.returncode}]\n"


def docs_with_real_outputs():
    """Returns the page with each console block filled with what its command prints."""
    def fill(block):
        command = block.group(1)
        done = tessera(*shlex.split(command)[1:])
        return f"```console\n$ {command}\n{done.stdout}{done.stderr}```"
    text = DOCS.read_text(encoding="utf-8")
    return re.sub(r"```console\n\$ (tessera [^\n]*)\n.*?```", fill, text, flags=re.S)


class DocsTest(unittest.TestCase):
    maxDiff = None

    def test_console_blocks_of_the_page_are_what_the_command_prints(self):
        self.assertEqual(DOCS.read_text(encoding="utf-8"), docs_with_real_outputs())


class GoldenTest(unittest.TestCase):
    maxDiff = None

    def test_every_case_prints_what_is_recorded(self):
        for name in GOLDEN_CASES:
            with self.subTest(name):
                recorded = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
                self.assertEqual(recorded, transcript(name))

    def test_no_recorded_file_is_left_over(self):
        self.assertEqual({p.stem for p in GOLDEN.glob("*.txt")},
                         set(GOLDEN_CASES))

    def test_ascii_cases_hold_ascii_only(self):
        for name in GOLDEN_CASES:
            if name.endswith("_ascii"):
                transcript(name).encode("ascii")


class ErrorTest(unittest.TestCase):

    def check(self, typed, words=()):
        done = tessera(*shlex.split(typed))
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, "")
        self.assertTrue(done.stderr.startswith("tessera"), done.stderr)
        for trace in ("frame #", ".cpp:", "Exception raised", "0x"):
            self.assertNotIn(trace, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_wrong_input_ends_with_2_and_no_trace(self):
        for name, typed in GOLDEN_CASES.items():
            if name.startswith("error_") and name != "error_run_not_found":
                with self.subTest(name):
                    self.check(typed)

    def test_errors_of_the_parser_name_the_word(self):
        for typed, words in PARSER_ERRORS:
            with self.subTest(typed):
                self.check(typed, words)

    def test_messages_name_what_was_wrong(self):
        for args, words in [
            (["show", "[8] S(3) @ mesh(2)"], ["S(3)"]),
            (["show", "[8] S(0) @ mesh(2)", "--rank", "9"], ["9", "mesh(2)"]),
            (["run", "-n", "2", "--engine", "nccl", "--", "true"],
             ["nccl", "threads", "mpi", "gloo"]),
            (["run", "-n", "2", "--", "no-such-program"],
             ["no-such-program", "No such file"]),
        ]:
            with self.subTest(args):
                for word in words:
                    self.assertIn(word, tessera(*args).stderr)


class ShowTest(unittest.TestCase):

    def show(self, *args):
        done = tessera("show", *args, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_json_boxes_tile_the_tensor(self):
        for layout in ["[5, 7] S(0) S(1) @ mesh(3, 2)",
                       "[9, 2] SS(0,2) S(0) @ mesh(2, 2)",
                       "[8] RS(0,[3,0,5]) @ mesh(3)",
                       "[2, 3, 4] S(2) @ mesh(5)"]:
            with self.subTest(layout):
                shown = self.show(layout)
                owners = {}
                for rank in shown["ranks"]:
                    count = 0
                    for box in rank["boxes"]:
                        cells = [()]
                        for begin, size in zip(box["offsets"], box["sizes"]):
                            cells = [c + (begin + i,) for c in cells
                                     for i in range(size)]
                        count += len(cells)
                        for cell in cells:
                            self.assertNotIn(cell, owners)
                            owners[cell] = rank["rank"]
                    self.assertEqual(count, rank["elements"])
                total = 1
                for size in shown["shape"]:
                    total *= size
                self.assertEqual(len(owners), total)

    def test_summary_agrees_with_the_ranks(self):
        for layout in ["[5, 7] S(0) S(1) @ mesh(4, 3)", "[3] S(0) R @ mesh(5, 2)",
                       "[9, 2] SS(0,3) S(1) @ mesh(2, 4)", "[] P(sum) @ mesh(3)",
                       "[0, 4] S(1) @ mesh(3)"]:
            with self.subTest(layout):
                shown = self.show(layout)
                elements = [r["elements"] for r in shown["ranks"]]
                summary = shown["summary"]
                self.assertEqual(summary["fewest_elements"], min(elements))
                self.assertEqual(summary["most_elements"], max(elements))
                self.assertEqual(summary["empty_ranks"], elements.count(0))

    def test_one_rank_equals_its_line_in_the_list(self):
        layout = "[9, 4] SS(0,2) S(0) @ mesh(2, 2)"
        everyone = self.show(layout)["ranks"]
        for rank in range(4):
            alone = self.show(layout, "--rank", str(rank))
            self.assertEqual(alone["ranks"], [everyone[rank]])

    def test_layout_text_in_json_parses_again(self):
        shown = self.show("--mesh", "dp=2,tp=3", "--shape", "4x6",
                          "--placements", "S(-1) P(max)")
        self.assertEqual(self.show(shown["layout"]), shown)

    def test_colour_only_on_a_terminal(self):
        args = ["show", "[4] S(0) @ mesh(2)"]
        self.assertNotIn("\x1b", tessera(*args).stdout)
        self.assertIn("\x1b[", on_terminal(*args))
        self.assertNotIn("\x1b[", on_terminal(*args, NO_COLOR="1"))

    def test_one_rank_of_65536_costs_under_50_ms_above_program_start(self):
        case = shlex.split(GOLDEN_CASES["show_rank_json"])
        start, full = [], []
        for _ in range(15):  # interleaved: both see the same load
            start.append(seconds("--version"))
            full.append(seconds(*case))
        above = statistics.median(full) - statistics.median(start)
        self.assertLess(above, 0.050)


def seconds(*args):
    begin = time.perf_counter()
    subprocess.run([TESSERA, *args], stdout=subprocess.DEVNULL, check=True,
                   timeout=LIMIT, env=environment())
    return time.perf_counter() - begin


def on_terminal(*args, **more):
    """Runs the command with a pseudo-terminal as its standard output."""
    main, side = pty.openpty()
    env = {**environment(), "TERM": "xterm-256color", **more}
    env = {k: v for k, v in env.items() if k != "NO_COLOR" or k in more}
    process = subprocess.Popen([TESSERA, *args], stdout=side, env=env)
    os.close(side)
    output = b""
    while True:
        try:
            piece = os.read(main, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        output += piece
    os.close(main)
    process.wait(timeout=LIMIT)
    return output.decode("utf-8")


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
            script = f'trap "echo got; exit 9" {name}; echo up; while :; do sleep 0.05; done'
            process = subprocess.Popen(
                [TESSERA, "run", "-n", "2", "--", "sh", "-c", script],
                stdout=subprocess.PIPE, text=True, env=environment())
            self.assertEqual(process.stdout.readline(), "up\n")
            process.send_signal(number)
            self.assertEqual(process.stdout.readline(), "got\n")
            self.assertEqual(process.wait(timeout=LIMIT), 9)
            process.stdout.close()

    def test_a_tessera_program_runs_on_that_many_ranks(self):
        probe = str(BIN / "cli_run_probe")
        for ranks in (1, 2, 4):
            done = tessera("run", "-n", str(ranks), "--", probe)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(
                done.stdout,
                f"{ranks} ranks, sum {ranks * (ranks - 1) // 2}, engine threads\n")

    def test_a_rank_that_throws_ends_the_program(self):
        done = tessera("run", "-n", "3", "--", str(BIN / "cli_run_probe"), "1")
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

    def test_json_lists_every_check(self):
        report = json.loads(tessera("doctor", "--json").stdout)
        self.assertTrue(report["usable"])
        for check in report["checks"]:
            self.assertIn(check["status"], ("ok", "warn", "fail"))
            if check["status"] != "ok":
                self.assertTrue(check["advice"], check)

    def test_absent_mpi_is_a_warning_with_advice(self):
        env = {**environment(), "PATH": "/nonexistent"}
        done = subprocess.run([TESSERA, "doctor", "--json"], env=env,
                              capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0)
        checks = {c["name"]: c for c in json.loads(done.stdout)["checks"]}
        self.assertEqual(checks["engine mpi"]["status"], "warn")


class BenchTest(unittest.TestCase):

    NAMES = ["S0->R", "S0->S1", "P->R", "P->S0"]

    def test_redistribute_stands_beside_pytorch(self):
        done = tessera("bench", "redistribute", "--ranks", "2", "--mib", "1",
                       "--rounds", "2", "--repeats", "2", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual([t["name"] for t in report["transitions"]], self.NAMES)
        self.assertRegex(report["pytorch"], r"^2\.")
        for transition in report["transitions"]:
            for key in ("seconds", "memcpy_seconds", "pytorch_seconds"):
                self.assertEqual(len(transition[key]), 2, key)
                self.assertTrue(all(x > 0 for x in transition[key]))
            ratios = sorted(a / b for a, b in zip(
                transition["pytorch_seconds"], transition["seconds"]))
            self.assertAlmostEqual(transition["ratio"], ratios[1])

    def test_without_pytorch_our_own_figures_remain(self):
        done = tessera("bench", "redistribute", "--ranks", "3", "--mib", "1",
                       "--rounds", "1", "--repeats", "1", "--python", "/nonexistent")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not found", done.stdout)
        for name in self.NAMES:
            self.assertIn(name, done.stdout)


class BenchDispatchTest(unittest.TestCase):

    NAMES = ["add", "add_", "mul by a number", "mm", "t", "view", "softmax", "sum",
             "cat", "layer_norm", "linear, backward"]

    def test_every_operator_stands_beside_pytorch(self):
        done = tessera("bench", "dispatch", "--rounds", "2", "--batches", "5",
                       "--calls", "3", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertRegex(report["pytorch"], r"^2\.")
        rows = {row["name"]: row for row in report["operators"]}
        self.assertEqual(list(rows), self.NAMES)
        for name, row in rows.items():
            for key in ("pytorch_plain_seconds", "pytorch_extra_seconds"):
                self.assertEqual(len(row[key]), 2, name)
            self.assertNotEqual(row["communicates"], "extra_seconds" in row, name)
        self.assertIn("ratio", rows["add_"])
        self.assertAlmostEqual(
            rows["add_"]["extra_seconds_per_dispatched"],
            max(rows["add_"]["extra_seconds"]))
        for name in ("add", "add_", "mul by a number", "mm", "cat"):
            self.assertEqual(rows[name]["dispatched"], 1, name)
        # The layer, its transpose and product; a dozen steps of backward.
        self.assertIn(rows["linear, backward"]["dispatched"], range(8, 20))

    def test_what_misses_its_target_is_named(self):
        done = tessera("bench", "dispatch", "--rounds", "1", "--batches", "2",
                       "--calls", "1", "--python", "/nonexistent")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\n(missed:|all \d+ targets met)")
        self.assertIn("not found", done.stdout)
        for name in self.NAMES:
            self.assertIn(name, done.stdout)

    def test_misses_of_our_own(self):
        done = tessera("bench", "dispatch", "--misses", "--json", "--python",
                       "/nonexistent")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(
            [(row["name"], row["mesh_dims"]) for row in report["misses"]],
            [("add", 1), ("mm", 1), ("view", 1), ("add", 2), ("mm", 2), ("view", 2),
             ("mm", 3), ("mm", 4), ("mm", 6)])
        self.assertGreater(report["misses"][0]["extra_seconds"], 0)
        self.assertIn("sequence_lengths", report)

    def test_misses_of_pytorch(self):
        python = os.path.join(ROOT, ".venv", "bin", "python")
        if not os.access(python, os.X_OK):
            self.skipTest("no .venv with PyTorch")
        done = subprocess.run(
            [python, os.path.join(ROOT, "benchmarks", "dispatch_pytorch.py"),
             "misses", "2", "20", "30"],
            input="round\n", capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout.splitlines()[1])
        self.assertEqual(
            list(answer), ["add 1", "mm 1", "view 1", "add 2", "mm 2", "view 2",
                           "mm 3", "lengths"])


class HelpTest(unittest.TestCase):

    def test_help_names_subcommands_and_options(self):
        for typed, words in [
            ("--help", ["show", "run", "doctor", "demo", "--version"]),
            ("show --help", ["--mesh", "--shape", "--placements", "--rank",
                             "--json", "--ascii", "--table"]),
            ("ops --help", ["NAME", "--form", "--json", "--rules"]),
            ("run --help", ["-n", "--engine", "--no-prefix", "PROGRAM", "127"]),
            ("doctor --help", ["--json"]),
            ("demo --help", ["--ranks", "--mesh", "--engine", "--steps", "--dtype",
                             "--json"]),
            ("bench redistribute --help", ["--ranks", "--mib", "--python"]),
            ("bench dispatch --help", ["--misses", "--device", "--python"]),
            ("bench train --help", ["--ranks", "--engine", "--warm-up", "--python"]),
        ]:
            with self.subTest(typed):
                done = tessera(*typed.split())
                self.assertEqual(done.returncode, 0)
                for word in words:
                    self.assertIn(word, done.stdout)


class OpsTest(unittest.TestCase):

    def listed(self, *args):
        done = tessera("ops", *args, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_counts_are_those_of_the_list(self):
        listed = self.listed()
        forms = [op["form"] for op in listed["operators"]]
        self.assertEqual(listed["counts"], {f: forms.count(f) for f in set(forms)})
        self.assertGreater(len(forms), 2500)

    def test_name_and_form_filter(self):
        ops = self.listed("softmax", "--form", "along")["operators"]
        self.assertIn("aten::_softmax", [op["name"] for op in ops])
        self.assertEqual({op["form"] for op in ops}, {"along"})
        self.assertTrue(all("softmax" in op["name"] for op in ops))

    def test_text_ends_with_the_counts(self):
        done = tessera("ops", "aten::bmm")
        self.assertRegex(done.stdout.splitlines()[-1], r"^4 operators: factors 4$")

    def test_rules_are_the_recorded_list(self):
        golden = (ROOT / "tests" / "golden" / "rules.txt").read_text(encoding="utf-8")
        self.assertEqual(tessera("ops", "--rules").stdout, golden)


class VersionTest(unittest.TestCase):

    def test_version_names_both_versions(self):
        done = tessera("--version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"^tessera \d+\.\d+\.\d+ \(LibTorch 2\.\d+")


def refresh():
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for stale in GOLDEN.glob("*.txt"):
        stale.unlink()
    for name in GOLDEN_CASES:
        (GOLDEN / f"{name}.txt").write_text(transcript(name), encoding="utf-8")
    DOCS.write_text(docs_with_real_outputs(), encoding="utf-8")
    print(f"{len(GOLDEN_CASES)} files written to {GOLDEN}")


if __name__ == "__main__":
    if "--refresh" in sys.argv:
        refresh()
    else:
        unittest.main(verbosity=1)
