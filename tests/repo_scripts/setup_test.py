"""Runs scripts/setup.sh as on machines that lack something."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

TOOLS = ("bash sh env cat sed grep sort head tail tr mktemp rm id dirname ln sleep "
         "c++ cmake ninja make git").split()
HEADERS = ("gtest/gtest.h", "CLI/CLI.hpp", "nlohmann/json.hpp", "xxhash.h",
           "benchmark/benchmark.h", "Python.h")
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


class SetupTest(unittest.TestCase):
    """A copy of scripts/ in an empty folder, and a PATH of links."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copytree(SCRIPTS, self.folder / "scripts")
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or "/none")
        (self.bin / "python3").symlink_to(sys.executable)
        # Optional packages may be missing where this test runs.
        for tool in ("ccache", "clang-format", "clang-tidy", "mpicxx", "mpirun",
                     "valgrind"):
            self.replace(tool, "exit 0")
        for name in HEADERS:
            header = self.folder / "headers" / name
            header.parent.mkdir(parents=True, exist_ok=True)
            header.touch()
        self.replace("apt-get", "echo 'E: Unable to fetch packages' >&2; exit 100")
        self.replace("sudo", "exit 1")

    def replace(self, tool, script):
        (self.bin / tool).unlink(missing_ok=True)
        (self.bin / tool).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / tool).chmod(0o755)

    def remove(self, *tools):
        for tool in tools:
            (self.bin / tool).unlink(missing_ok=True)

    def python_package(self, version):
        package = self.folder / "packages" / "torch"
        (package / "share/cmake/Torch").mkdir(parents=True)
        (package / "__init__.py").write_text("raise ImportError('too slow')\n")
        (package / "version.py").write_text(f"__version__ = '{version}'\n")
        (package / "share/cmake/Torch/TorchConfig.cmake").write_text("")
        return {"PYTHONPATH": str(package.parent)}

    def run_setup(self, *arguments, **environment):
        clean = {k: v for k, v in os.environ.items()
                 if k not in ("Torch_DIR", "CMAKE_PREFIX_PATH", "CI", "PYTHONPATH",
                              "CXX")}
        result = subprocess.run(
            ["bash", self.folder / "scripts/setup.sh", *arguments],
            env=clean | {"PATH": str(self.bin),
                         "CPATH": str(self.folder / "headers")} | environment,
            text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return result.returncode, result.stdout

    def test_nothing_is_said_when_nothing_is_missing(self):
        self.assertEqual(self.run_setup(Torch_DIR="/any"), (0, ""))
        self.assertFalse((self.folder / ".venv").exists())

    def test_a_libtorch_in_the_prefix_path_is_honoured(self):
        package = self.python_package("2.12.0")["PYTHONPATH"] + "/torch"
        for prefix in (package, f"/none:{package}/share/cmake"):
            self.assertEqual(self.run_setup(CMAKE_PREFIX_PATH=prefix), (0, ""))

    def test_a_supported_torch_of_python_is_honoured(self):
        for version in ("2.11.0+cu130", "2.14.1"):
            with self.subTest(version):
                environment = self.python_package(version)
                self.assertEqual(self.run_setup(**environment), (0, ""))
                shutil.rmtree(self.folder / "packages")

    def test_an_unsupported_torch_of_python_is_not_used(self):
        for version in ("2.10.2", "2.15.0", "3.0.0"):
            with self.subTest(version):
                code, text = self.run_setup("--check",
                                            **self.python_package(version))
                self.assertEqual(code, 1)
                self.assertIn(f"python3 has torch {version}", text)
                self.assertIn("LibTorch 2.11 to 2.14 is missing", text)
                shutil.rmtree(self.folder / "packages")

    def test_a_prefix_path_without_torch_does_not_count(self):
        code, text = self.run_setup("--check", CMAKE_PREFIX_PATH="/usr")
        self.assertEqual(code, 1)
        self.assertIn("set Torch_DIR", text)

    def test_missing_tools_are_named_in_one_line(self):
        self.remove("ninja", "git")
        code, text = self.run_setup(Torch_DIR="/any")
        self.assertEqual(code, 1)
        last = text.strip().split("\n")[-1]
        self.assertIn("missing and not installed: ninja-build git", last)
        self.assertIn("Unable to fetch packages", last)

    def test_an_old_cmake_counts_as_missing(self):
        self.remove("cmake")
        self.replace("cmake", "echo 'cmake version 3.24.4'")
        code, text = self.run_setup(Torch_DIR="/any")
        self.assertEqual(code, 1)
        self.assertIn("not installed: cmake", text)

    def test_missing_optional_tools_are_a_warning(self):
        self.remove("clang-format", "mpirun")
        code, text = self.run_setup(Torch_DIR="/any")
        self.assertEqual(code, 0)
        self.assertIn("without clang-format openmpi-bin:", text)

    def test_ci_requires_optional_tools(self):
        self.remove("clang-format")
        code, text = self.run_setup(Torch_DIR="/any", CI="true")
        self.assertEqual(code, 1)
        self.assertIn("not installed: clang-format", text)

    def test_without_root_the_reason_is_given(self):
        self.remove("ninja")
        self.replace("id", "echo 1000")
        code, text = self.run_setup(Torch_DIR="/any")
        self.assertEqual(code, 1)
        self.assertIn("neither root nor sudo", text)

    def test_what_is_missing_is_installed(self):
        self.remove("ninja")
        self.replace("apt-get", f"case \"$*\" in *install*-y*ninja-build*) "
                     f"ln -s /bin/true {self.bin}/ninja;; *) exit 1;; esac")
        code, text = self.run_setup(Torch_DIR="/any")
        self.assertEqual((code, text), (0, "setup: installing ninja-build\n"))

    def test_a_long_installation_says_that_it_goes_on(self):
        self.remove("ninja")
        self.replace("apt-get", f"sleep 1; ln -s /bin/true {self.bin}/ninja")
        code, text = self.run_setup(Torch_DIR="/any", TESSERA_PROGRESS_SECONDS="0.3")
        self.assertEqual(code, 0)
        self.assertRegex(text, r"^setup: installing ninja-build\n"
                         r"(setup: installing ninja-build \(0:0\d\)\n)+$")

    def test_nobody_waits_for_the_line_that_does_not_come(self):
        self.remove("ninja")
        self.replace("apt-get", f"ln -s /bin/true {self.bin}/ninja")
        begin = time.monotonic()
        self.run_setup(Torch_DIR="/any", TESSERA_PROGRESS_SECONDS="50")
        self.assertLess(time.monotonic() - begin, 25)

    def test_wheels_are_installed_with_progress_too(self):
        venv = self.folder / ".venv/bin"
        venv.mkdir(parents=True)
        (venv / "python").write_text(
            "#!/bin/sh\ncase \"$*\" in *install*torch*) sleep 1; "
            "echo 'ERROR: no such wheel'; exit 1;; *pip*--version) exit 0;; esac\n"
            "exit 1\n")
        (venv / "python").chmod(0o755)
        code, text = self.run_setup(TESSERA_PROGRESS_SECONDS="0.3")
        self.assertEqual(code, 1)
        self.assertRegex(text, r"setup: installing torch==2.13.0 into .venv\n"
                         r"setup: installing torch==2.13.0 into .venv \(0:0\d\)\n")
        self.assertIn("ERROR: no such wheel", text)

    def test_a_wheel_that_cannot_be_had_is_named(self):
        code, text = self.run_setup(PIP_NO_INDEX="1", PIP_FIND_LINKS="/none",
                                    PIP_CONFIG_FILE="/dev/null")
        self.assertEqual(code, 1)
        self.assertIn("pip could not install torch==2.13.0", text)


if __name__ == "__main__":
    unittest.main()
