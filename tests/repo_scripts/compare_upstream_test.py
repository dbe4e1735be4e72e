"""scripts/compare_upstream.py on answers made by hand: what is a gap."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import compare_upstream  # noqa: E402


def upstream_of(given, used, out):
    return {
        "overloads": {"aten::f": "single_dim"},
        "calls": [{"op": "aten::f", "operands": ["self", "other"],
                   "rows": [{"given": given, "used": used, "out": out}]}],
    }


def ours_of(used, out, form="pointwise"):
    return {"operators": {"aten::f": form},
            "calls": [[{"used": used, "out": out, "reason": "rule"}]]}


class CompareUpstreamTest(unittest.TestCase):

    def gaps(self, upstream, ours, *excuses):
        gaps, excused, unused = compare_upstream.compare(
            upstream, ours, [compare_upstream.parse_excuse(e) for e in excuses])
        return [(g.kind, g.given) for g in gaps], len(excused), len(unused)

    def test_equal_answers_have_no_gap(self):
        self.assertEqual(
            self.gaps(upstream_of(["S(0)", "R"], ["S(0)", "S(0)"], ["S(0)"]),
                      ours_of(["S(0)", "S(0)"], ["S(0)"])), ([], 0, 0))

    def test_a_shard_kept_there_only_is_lost(self):
        self.assertEqual(
            self.gaps(upstream_of(["S(0)", "R"], ["S(0)", "R"], ["S(0)"]),
                      ours_of(["R", "R"], ["R"])), ([("lost", "S(0),R")], 0, 0))

    def test_the_second_operand_counts(self):
        self.assertEqual(
            self.gaps(upstream_of(["S(0)", "S(0)"], ["S(0)", "S(0)"], ["S(0)"]),
                      ours_of(["S(0)", "R"], ["S(0)"])),
            ([("lost", "S(0),S(0)")], 0, 0))

    def test_what_only_we_keep_is_no_gap(self):
        self.assertEqual(
            self.gaps(upstream_of(["S(0)", "R"], ["R", "R"], ["R"]),
                      ours_of(["S(0)", "R"], ["S(0)"])), ([], 0, 0))

    def test_a_result_that_is_replicated_here_is_a_gap(self):
        self.assertEqual(
            self.gaps(upstream_of(["S(0)", "R"], ["S(0)", "R"], ["S(0)"]),
                      ours_of(["S(0)", "R"], ["R"])), ([("output", "S(0),R")], 0, 0))

    def test_a_refused_call_is_lost(self):
        upstream = upstream_of(["S(0)", "R"], ["S(0)", "R"], ["S(0)"])
        ours = {"operators": {"aten::f": "view"}, "calls": [[{"error": "no"}]]}
        self.assertEqual(self.gaps(upstream, ours), ([("lost", "S(0),R")], 0, 0))

    def test_an_operator_without_a_rule_is_a_gap(self):
        upstream = upstream_of(["R", "R"], ["R", "R"], ["R"])
        for form, expected in [("fallback", 1), ("whole", 1), ("composite", 0)]:
            gaps, _, _ = self.gaps(upstream, ours_of(["R", "R"], ["R"], form))
            self.assertEqual(len(gaps), expected, form)

    def test_exceptions_excuse_and_must_be_used(self):
        upstream = upstream_of(["S(0)", "R"], ["S(0)", "R"], ["S(0)"])
        ours = ours_of(["R", "R"], ["R"])
        for excuse in ("aten::f: why", "aten::* lost: why", "aten::f S(0),*: why"):
            self.assertEqual(self.gaps(upstream, ours, excuse), ([], 1, 0), excuse)
        self.assertEqual(self.gaps(upstream, ours, "aten::f output: why"),
                         ([("lost", "S(0),R")], 0, 1))

    def test_an_exception_needs_a_reason(self):
        with self.assertRaisesRegex(SystemExit, "reason"):
            compare_upstream.parse_excuse("aten::f lost:")


if __name__ == "__main__":
    unittest.main()
