#!/usr/bin/env python3
"""tessera ckpt with large checkpoints, on full disks, without permission: bounded
memory, progress, clear errors.

    python3 tests/cli/ckpt_limits_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""

import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from command_line import LIMIT, TESSERA, environment

MIB = 1 << 20
SMALL, LARGE = 8 * MIB, 128 * MIB
NOBODY = 65534
# Runs a command from a small process, and prints the most memory that it had at a
# time, in KiB. That of a process begins with its parent's.
MEASURED = """
import os, resource, sys
code = os.spawnv(os.P_WAIT, sys.argv[1], sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def write_large(path, size):
    """A float32 tensor of so many bytes, and a small one, as safetensors."""
    header = {"large": {"dtype": "F32", "shape": [1024, size // 4096],
                        "data_offsets": [0, size]},
              "small": {"dtype": "F32", "shape": [3],
                        "data_offsets": [size, size + 12]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for i in range(size // MIB):
            file.write(struct.pack("<f", i) * (MIB // 4))
        file.write(struct.pack("<3f", 1, 2, 3))
    return path


def run(*args, **more):
    return subprocess.run([TESSERA, "ckpt", *map(str, args)], capture_output=True,
                          text=True, timeout=LIMIT, **{"env": environment(), **more})


class LimitsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ckpt_limits", dir=memory))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.folder.chmod(0o755)
        cls.large = write_large(cls.folder / "large.safetensors", LARGE)
        cls.small = write_large(cls.folder / "small.safetensors", SMALL)
        for size in ("large", "small"):
            done = run("convert", cls.folder / f"{size}.safetensors",
                       cls.folder / f"{size}.dcp", "--format", "dcp")
            assert done.returncode == 0, done.stderr

    def setUp(self):
        self.here = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        self.addCleanup(shutil.rmtree, self.here)

    def fails(self, done, words, code=1):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertTrue(done.stderr.startswith("tessera ckpt: "), done.stderr)
        for word in words:
            self.assertIn(str(word), done.stderr)


class MemoryTest(LimitsTest):

    def peak(self, *args):
        """Returns the bytes of memory that a command had at most."""
        done = subprocess.run(
            [sys.executable, "-S", "-c", MEASURED, TESSERA, "ckpt", *map(str, args)],
            env=environment(), capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        return int(done.stdout.splitlines()[-1]) * 1024

    def check_bounded(self, *args):
        """Sixteen times the data take no more memory."""
        peaks = []
        for size in ("small", "large"):
            shutil.rmtree(self.here / "to", ignore_errors=True)
            peaks.append(self.peak(*[str(a).replace("SIZE", size) for a in args]))
        self.assertLess(peaks[1], 64 * MIB, peaks)
        self.assertLess(peaks[1] - peaks[0], 8 * MIB, peaks)
        if os.environ.get("TESSERA_LONG"):
            print(args[0], [f"{p / MIB:.1f} MiB" for p in peaks])

    def test_reshard_streams(self):
        self.check_bounded("reshard", self.folder / "SIZE.safetensors",
                           self.here / "to", "--to", "dp=2,tp=4", "--placements",
                           "S(0) S(1)", "--format", "tessera")

    def test_reshard_of_one_large_zip_streams(self):
        self.check_bounded("reshard", self.folder / "SIZE.dcp", self.here / "to",
                           "--to", "4", "--placements", "S(1)")

    def test_diff_streams(self):
        self.check_bounded("diff", self.folder / "SIZE.safetensors",
                           self.folder / "SIZE.dcp")


class ProgressTest(LimitsTest):

    def test_a_pipe_gets_a_line_now_and_then(self):
        done = run("verify", self.small)
        self.assertEqual(done.stderr, "", "none within the first 20 s")
        often = environment(TESSERA_PROGRESS_SECONDS="0")
        for command, title in [
                (["verify", self.small], "verifying"),
                (["convert", self.small, self.here / "a", "--format", "tessera"],
                 "converting"),
                (["reshard", self.small, self.here / "b", "--to", "2"], "resharding"),
                (["diff", self.small, self.folder / "small.dcp"], "comparing")]:
            for more in ([], ["--json"]):
                done = run(*command, *more, *(["--overwrite"] if more and title in (
                    "converting", "resharding") else []), env=often)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, rf"(?m)^{title} +\d+ %  .* of 8\.0 MiB  ")
                self.assertNotIn(title, done.stdout)
                if more:
                    json.loads(done.stdout)

    def test_a_terminal_gets_a_bar(self):
        main, side = pty.openpty()
        process = subprocess.Popen(
            [TESSERA, "ckpt", "reshard", self.large, self.here / "to", "--to", "2x4",
             "--placements", "S(1) S(1)", "--format", "dcp"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=side,
            env=environment(TERM="xterm-256color", COLUMNS="120"))
        os.close(side)
        output = b""
        try:
            while piece := os.read(main, 4096):
                output += piece
        except OSError:  # the other end is closed
            pass
        os.close(main)
        self.assertIn("8 files", process.communicate(timeout=LIMIT)[0].decode())
        text = output.decode()
        self.assertRegex(text, "\\rresharding +\\d+ %  ")
        self.assertRegex(text, r" of 128\.0 MiB")
        self.assertTrue(re.search(r"\r +\r$", text), "the line is cleared")
        self.assertNotIn("\n", text)


class DiskTest(LimitsTest):

    def test_a_full_disk_is_named_and_nothing_is_left(self):
        disk = self.here / "disk"
        disk.mkdir()
        script = ('mount -t tmpfs -o size=1m tmpfs "$0" || exit 77; '
                  '"$@"; code=$?; ls -A "$0"; exit $code')
        flags = ["--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
        done = subprocess.run(
            ["unshare", *flags, "sh", "-c", script, disk, TESSERA, "ckpt", "convert",
             self.small, disk / "to", "--format", "tessera"],
            env=environment(), capture_output=True, text=True, timeout=LIMIT)
        if done.returncode not in (0, 1):
            self.skipTest("no file system may be mounted here: " + done.stderr)
        self.fails(done, [disk, "No space left on device (ENOSPC)",
                          "free some space or write to another place"])


class PermissionTest(LimitsTest):

    def as_nobody(self, *args):
        def drop():
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
        return run(*args, preexec_fn=drop)

    def test_a_file_that_may_not_be_read(self):
        path = self.here / "a.safetensors"
        shutil.copy(self.small, path)
        self.here.chmod(0o755)
        path.chmod(0)
        self.fails(self.as_nobody("ls", path),
                   [path, "Permission denied (EACCES)", "who may read"])

    def test_a_folder_that_may_not_be_written(self):
        self.here.chmod(0o555)
        self.fails(self.as_nobody("convert", self.small, self.here / "x", "--format",
                                  "dcp"),
                   [self.here, "Permission denied (EACCES)", "who may read and write"])
        self.assertEqual(list(self.here.iterdir()), [])


class NoCheckpointTest(LimitsTest):

    def test_each_command_says_that_a_folder_is_none(self):
        for args in (["ls"], ["verify"], ["convert", self.here / "x", "--format", "dcp"],
                     ["reshard", self.here / "x", "--to", "2"], ["diff", self.small]):
            for more in ([], ["--json"]):
                done = run(args[0], self.here, *args[1:], *more)
                self.fails(done, [self.here, "holds no checkpoint", "manifest.jsonl",
                                  ".metadata", "*.safetensors"], code=2)


if __name__ == "__main__":
    unittest.main(verbosity=1)
