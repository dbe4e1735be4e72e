#!/usr/bin/env python3
"""What the tessera command prints: recorded outputs, the console blocks of its page,
errors, help.

    python3 tests/cli/cli_golden_test.py            run the tests
    python3 tests/cli/cli_golden_test.py --refresh  write tests/golden/cli anew, and
                                                        the console blocks of
                                                        docs/reference/cli.md

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""

import re
import shlex
import sys
import unittest

from command_line import ROOT, tessera
from golden_cases import GOLDEN_CASES

GOLDEN = ROOT / "tests" / "golden" / "cli"
DOCS = ROOT / "docs" / "reference" / "cli.md"

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


def transcript(name):
    """Returns what a user sees: the command, both streams, the exit code."""
    typed = GOLDEN_CASES[name]
    locale = "C" if name.endswith("_ascii") else "C.UTF-8"
    done = tessera(*shlex.split(typed), locale=locale)
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

    def test_lines_for_readers_fit_80_columns(self):
        """JSON, errors and the texts of other programs (--xla) stay whole."""
        for name, typed in GOLDEN_CASES.items():
            if name.startswith("error_") or "--json" in typed or "--xla" in typed:
                continue
            recorded = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
            for line in recorded.splitlines()[1:]:
                with self.subTest(name, line=line):
                    self.assertLessEqual(len(line), 80)

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


class HelpTest(unittest.TestCase):

    def test_help_names_subcommands_and_options(self):
        for typed, words in [
            ("--help", ["show", "run", "doctor", "demo", "--version"]),
            ("show --help", ["--mesh", "--shape", "--placements", "--rank",
                             "--json", "--ascii", "--table"]),
            ("ops --help", ["NAME", "--form", "--json", "--rules"]),
            ("run --help", ["-n", "--engine", "--no-prefix", "PROGRAM", "127"]),
            ("ckpt --help", ["ls", "verify", "convert", "reshard", "diff"]),
            ("doctor --help", ["--json"]),
            ("demo --help", ["--ranks", "--mesh", "--engine", "--steps", "--dtype",
                             "--recompute", "--json"]),
            ("bench redistribute --help", ["--ranks", "--mib", "--python"]),
            ("bench dispatch --help", ["--misses", "--device", "--python"]),
            ("bench checkpoint --help", ["--ranks", "--engine", "--mib", "--rounds"]),
            ("bench fsdp --help", ["--width", "--dtype", "--accumulate", "--hybrid"]),
            ("bench operators --help", ["--rounds", "--json"]),
            ("bench recompute --help", ["--rows", "--width", "--blocks", "--rounds"]),
            ("bench step --help", ["--rounds", "--steps", "--python", "--json"]),
            ("bench init --help", ["--ranks", "--engine", "--layers", "--rounds"]),
            ("bench clip --help", ["--ranks", "--engine", "--tensors", "--rounds"]),
            ("bench train --help", ["--ranks", "--engine", "--warm-up", "--python"]),
        ]:
            with self.subTest(typed):
                done = tessera(*typed.split())
                self.assertEqual(done.returncode, 0)
                for word in words:
                    self.assertIn(word, done.stdout)


    def test_every_command_of_the_list_has_help_with_its_title(self):
        listed = tessera("--help").stdout.split("Subcommands:\n")[1]
        rows = [line.strip().split(None, 1) for line in listed.strip().splitlines()]
        self.assertEqual([name for name, _ in rows],
                         ["show", "plan", "ops", "ckpt", "run", "doctor", "demo",
                          "bench"])
        for name, title in rows:
            with self.subTest(name):
                done = tessera(name, "--help")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout.splitlines()[0], title)


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
