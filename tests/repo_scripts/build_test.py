"""Runs scripts/build.sh with a cmake and a ninja that only pretend."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
CMAKE = """
echo '-- LibTorch 2.13.0: here'
mkdir -p build/torch
echo "Torch_DIR:PATH=$PWD/build/torch" > build/CMakeCache.txt
touch build/build.ninja
"""
# Ninja's way to print a step: NINJA_STATUS, then what it does.
STEP = 'step() { printf "%s%s\\n" "$(echo "$NINJA_STATUS" | sed "s/%f/$1/;s/%t/9/")" "$2"; }\n'


class BuildTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "scripts").mkdir()
        for name in ("build.sh", "build_progress.py"):
            shutil.copy(SCRIPTS / name, self.folder / "scripts" / name)
        (self.folder / "CMakePresets.json").write_text("{}")
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.replace("cmake", CMAKE)
        self.replace("ninja", "echo \"ninja: Entering directory 'build'\"\n"
                     "echo 'ninja: no work to do.'")

    def replace(self, tool, script):
        (self.bin / tool).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / tool).chmod(0o755)

    def build(self, *targets, seconds="60"):
        result = subprocess.run(
            ["bash", self.folder / "scripts/build.sh", "dev", *targets],
            env=os.environ | {"PATH": f"{self.bin}:{os.environ['PATH']}",
                              "TESSERA_PROGRESS_SECONDS": seconds},
            text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return result.returncode, result.stdout

    def test_configures_once_and_says_so_first(self):
        code, text = self.build()
        self.assertEqual(code, 0)
        self.assertRegex(text, r"^build: configuring preset dev\n"
                         r"-- LibTorch 2\.13\.0: here\nbuild: 0 steps, 0:\d\d\n$")
        self.assertRegex(self.build()[1], r"^build: 0 steps, 0:\d\d\n$")

    def test_a_failed_configuration_is_shown(self):
        self.replace("cmake", "echo 'CMake Error: no LibTorch'; exit 1")
        code, text = self.build()
        self.assertEqual(code, 1)
        self.assertEqual(text, "build: configuring preset dev\n"
                         "CMake Error: no LibTorch\n")

    def test_steps_are_counted_from_time_to_time_and_at_the_end(self):
        self.replace("ninja", STEP + "step 1 one; step 2 two; sleep 1; step 9 nine")
        code, text = self.build(seconds="0.4")
        self.assertEqual(code, 0)
        self.assertRegex(text, r"(build: 2 of 9 steps, 0:0\d\n)+"
                         r"build: 9 of 9 steps, 0:\d\d\n$")
        self.assertNotIn("nine", text)

    def test_warnings_and_errors_pass_as_they_are_and_the_status_is_kept(self):
        said = ("a.cpp:1: warning: odd\n\n  1 | int a;\n"
                "FAILED: b.o \nc++ -c b.cpp\nb.cpp:2: error: wrong\n"
                "ninja: build stopped: subcommand failed.\n")
        (self.folder / "said").write_text(said)
        self.replace("ninja", STEP + "step 1 a.o\nsed -n 1,3p said\nstep 2 b.o\n"
                     "sed -n '4,$p' said\nexit 3")
        code, text = self.build()
        self.assertEqual(code, 3)
        self.assertIn(said + "build: 2 of 9 steps, 0:", text)

    def test_a_step_may_end_without_a_new_line(self):
        self.replace("ninja", "printf unfinished\n" + STEP + "step 4 next")
        code, text = self.build()
        self.assertEqual(code, 0)
        self.assertRegex(text, r"unfinished\n?build: 4 of 9 steps")

    def test_targets_reach_ninja(self):
        self.replace("ninja", 'echo "$*"')
        self.assertRegex(self.build("one", "two")[1], r"-C build -j \d+ one two\n")

    def test_messages_pass_before_the_end(self):
        self.replace("ninja", "echo 'b.cpp:2: error: wrong'; exec sleep 30")
        process = subprocess.Popen(
            ["bash", self.folder / "scripts/build.sh", "dev"],
            env=os.environ | {"PATH": f"{self.bin}:{os.environ['PATH']}"},
            text=True, stdout=subprocess.PIPE)
        for _ in range(3):
            line = process.stdout.readline()
        process.terminate()
        process.communicate()
        self.assertEqual(line, "b.cpp:2: error: wrong\n")
        self.assertEqual(process.returncode, 128 + 15)


if __name__ == "__main__":
    unittest.main()
