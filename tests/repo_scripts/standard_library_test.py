#!/usr/bin/env python3
"""A compiler that links the C++ standard library statically is refused."""
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class StandardLibrary(unittest.TestCase):
    def test_static_one_is_refused_before_anything_is_built(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                ["cmake", "-S", str(ROOT), "-B", folder, "-G", "Ninja",
                 "-DCMAKE_CXX_FLAGS=-static-libstdc++"],
                capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        said = " ".join(done.stderr.split())
        self.assertIn("links the C++ standard library statically", said)
        self.assertIn("use another compiler (CXX=/usr/bin/g++)", said)


if __name__ == "__main__":
    unittest.main()
