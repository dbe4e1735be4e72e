"""Runs scripts/tidy.py with a clang-tidy that finds the word `fault`."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Prints findings as clang-tidy does, those in a header too.
CLANG_TIDY = """
[ "$1" != --version ] || { echo 'LLVM version 14'; exit; }
for file; do :; done
echo "$file" >> looked_at
if grep -q slow "$file"; then sleep 1; fi
if grep -q broken "$file"; then echo 'no such option' >&2; exit 1; fi
status=0
for path in "$file" src/shared.h; do
  grep -n fault "$path" >/dev/null || continue
  echo "$PWD/$path:1:1: error: a fault [bugprone-fault,-warnings-as-errors]"
  echo '  fault'
  echo '  ^'
  status=1
done
exit $status
"""


class TidyTest(unittest.TestCase):
    """A repository of three sources, two of which include a header."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp()).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("scripts", "src", "cli", "bin", "build"):
            (self.folder / name).mkdir()
        shutil.copy(ROOT / "scripts/tidy.py", self.folder / "scripts")
        self.write(".clang-tidy", "Checks: all\n")
        self.write("src/shared.h", "well\n")
        self.write("src/a.cpp", '#include "shared.h"\n')
        self.write("src/b.cpp", '#include <vector>\n#include "shared.h"\n')
        self.write("cli/c.cpp", "well\n")
        self.write("build/compile_commands.json", json.dumps(
            [{"file": str(self.folder / name), "command": "c++"}
             for name in ("src/a.cpp", "src/b.cpp", "cli/c.cpp")]))
        tool = self.folder / "bin/clang-tidy-14"
        tool.write_text("#!/bin/sh\n" + CLANG_TIDY)
        tool.chmod(0o755)
        subprocess.run(["git", "init", "-q"], cwd=self.folder, check=True)

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def tidy(self, *arguments):
        """Returns the exit status, the output and the sources looked at."""
        (self.folder / "looked_at").write_text("")
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        result = subprocess.run(
            [sys.executable, "-B", "scripts/tidy.py", "--build", "build", *arguments],
            cwd=self.folder, text=True, stdout=subprocess.PIPE, timeout=60,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PATH": path, "TESSERA_PROGRESS_SECONDS": "0.3"})
        looked_at = (self.folder / "looked_at").read_text().split()
        return result.returncode, result.stdout, sorted(looked_at)

    def test_clean_sources_are_looked_at_once(self):
        code, text, looked_at = self.tidy()
        self.assertEqual(code, 0)
        self.assertEqual(looked_at, ["cli/c.cpp", "src/a.cpp", "src/b.cpp"])
        self.assertIn("tidy: 3 sources, of which 0 were known to be clean, 0 findings", text)
        code, text, looked_at = self.tidy()
        self.assertEqual((code, looked_at), (0, []))
        self.assertIn("tidy: 3 sources, of which 3 were known to be clean, 0 findings", text)
        self.assertEqual(len(self.tidy("--all")[2]), 3)

    def test_what_changed_is_looked_at_again(self):
        self.tidy()
        self.write("cli/c.cpp", "still well\n")
        self.assertEqual(self.tidy()[2], ["cli/c.cpp"])
        self.write("src/shared.h", "still well\n")
        self.assertEqual(self.tidy()[2], ["src/a.cpp", "src/b.cpp"])
        self.write(".clang-tidy", "Checks: some\n")
        self.assertEqual(len(self.tidy()[2]), 3)

    def test_findings_are_counted_once_and_stay(self):
        self.write("src/shared.h", "fault\n")
        self.write("cli/c.cpp", "fault\n")
        code, text, _ = self.tidy()
        self.assertEqual(code, 1)
        self.assertEqual(text.count("shared.h:1:1: error: a fault"), 1)
        self.assertIn("tidy: findings by check\n     2  bugprone-fault\n", text)
        self.assertIn("tidy: 3 sources, of which 0 were known to be clean, 2 findings", text)
        self.assertEqual(len(self.tidy()[2]), 3)

    def test_a_clang_tidy_that_fails_is_a_finding(self):
        self.write("cli/c.cpp", "broken\n")
        code, text, _ = self.tidy()
        self.assertEqual(code, 1)
        self.assertIn("no such option", text)

    def test_progress_is_told(self):
        self.write("cli/c.cpp", "slow\n")
        self.assertIn("tidy: 2 of 3 sources, 0 findings, 0:0", self.tidy()[1])


class PlantedFaultsTest(unittest.TestCase):
    """The real clang-tidy on tests/planted/tidy.cpp."""

    @unittest.skipUnless(shutil.which("clang-tidy"), "clang-tidy is not on PATH")
    def test_are_found(self):
        done = subprocess.run(
            [sys.executable, "-B", ROOT / "scripts/tidy.py", "--planted"],
            text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
