#!/usr/bin/env python3
"""tessera show and tessera ops: what they say agrees with itself.

    python3 tests/cli/cli_show_and_ops_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""

import json
import shlex
import statistics
import subprocess
import time
import unittest

from command_line import LIMIT, ROOT, TESSERA, environment, on_terminal, tessera
from golden_cases import GOLDEN_CASES


def seconds(*args):
    begin = time.perf_counter()
    subprocess.run([TESSERA, *args], stdout=subprocess.DEVNULL, check=True,
                   timeout=LIMIT, env=environment())
    return time.perf_counter() - begin


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
        self.assertIn("\x1b[", on_terminal([TESSERA, *args]))
        self.assertNotIn("\x1b[", on_terminal([TESSERA, *args], NO_COLOR="1"))

    def test_one_rank_of_65536_costs_under_50_ms_above_program_start(self):
        case = shlex.split(GOLDEN_CASES["show_rank_json"])
        start, full = [], []
        for _ in range(15):  # interleaved: both see the same load
            start.append(seconds("--version"))
            full.append(seconds(*case))
        above = statistics.median(full) - statistics.median(start)
        self.assertLess(above, 0.050)


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

    def test_tables_fit_80_columns_and_keep_names_whole(self):
        """Also the longest names, which get a line of their own."""
        lines = tessera("ops").stdout.splitlines()
        names = {op["name"] for op in self.listed()["operators"]}
        for line in lines:
            self.assertTrue(len(line) <= 80 or line.strip() in names, line)
        words = {word for line in lines for word in line.split()}
        self.assertEqual(names - words, set())

    def test_rules_are_the_recorded_list(self):
        golden = (ROOT / "tests" / "golden" / "rules.txt").read_text(encoding="utf-8")
        self.assertEqual(tessera("ops", "--rules").stdout, golden)

if __name__ == "__main__":
    unittest.main(verbosity=1)
