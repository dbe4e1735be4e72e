"""scripts/upstream_strategies.py on a few operators: rows that are known."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def python_with_torch():
    own = ROOT / ".venv" / "bin" / "python"
    for python in (str(own), sys.executable):
        found = subprocess.run(
            [python, "-c", "import torch.distributed.tensor, numpy"],
            capture_output=True, check=False) if os.access(python, os.X_OK) else None
        if found and found.returncode == 0:
            return python
    return None


PYTHON = python_with_torch()


@unittest.skipIf(PYTHON is None, "no Python with torch and numpy")
class UpstreamStrategiesTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "upstream.json")
            done = subprocess.run(
                [PYTHON, "-B", str(ROOT / "scripts" / "upstream_strategies.py"),
                 "--only", r"^aten::(mm|_softmax|add_\.Tensor|add\.out|mul\.Scalar)$",
                 "--output", output],
                capture_output=True, text=True, timeout=110, check=False)
            cls.error = done.stderr
            if done.returncode == 0:
                with open(output, encoding="utf-8") as file:
                    cls.report = json.load(file)

    def rows(self, op):
        """Returns {given: (used, out, keeps)} of the first call of an operator."""
        call = next(c for c in self.report["calls"] if c["op"] == op)
        return {tuple(row["given"]): (row["used"], row["out"], row["keeps"])
                for row in call["rows"]}

    def test_every_registered_overload_is_named(self):
        self.assertGreater(len(self.report["overloads"]), 1000, self.error)
        self.assertIn("aten::mm", self.report["overloads"])
        self.assertTrue(all(op.startswith("aten::") for op in self.report["overloads"]))
        self.assertFalse(any(op.startswith("aten::") for op in self.report["other"]))

    def test_a_contracted_dim_becomes_partial(self):
        rows = self.rows("aten::mm")
        self.assertEqual(rows["S(0)", "R"], (["S(0)", "R"], ["S(0)"], True))
        self.assertEqual(rows["S(1)", "R"], (["S(1)", "S(0)"], ["P(sum)"], True))

    def test_what_is_given_up_is_not_kept(self):
        call = next(c for c in self.report["calls"] if c["op"] == "aten::_softmax")
        dim = call["arguments"]["dim"] % len(call["arguments"]["self"]["tensor"])
        rows = self.rows("aten::_softmax")
        self.assertEqual(rows[f"S({dim})",], (["R"], ["R"], False))

    def test_forms_are_made_of_the_functional_call(self):
        self.assertEqual(self.report["no_call"], [])
        call = next(c for c in self.report["calls"] if c["op"] == "aten::add.out")
        self.assertEqual(call["operands"], ["self", "other", "out"])
        scalar = next(c for c in self.report["calls"] if c["op"] == "aten::mul.Scalar")
        self.assertEqual(scalar["operands"], ["self"])
        self.assertIsInstance(scalar["arguments"]["other"], (int, float))


if __name__ == "__main__":
    unittest.main()
