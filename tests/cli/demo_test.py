#!/usr/bin/env python3
"""tessera demo: equal curves on every engine, what it shows, what it refuses.

    python3 tests/cli/demo_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset. What needs
mpirun is skipped where there is none.
"""

import functools
import json
import math
import os
import shlex
import shutil
import tempfile
import unittest

from command_line import TESSERA, call, environment, on_terminal, tessera

LAYERS = 2  # of the demo's model


def demo(typed, **more):
    return tessera("demo", *shlex.split(typed), **more)


@functools.cache
def report(typed):
    """Returns the JSON of a demo that must end well."""
    done = demo(typed + " --json")
    if done.returncode != 0:
        raise AssertionError(f"demo {typed}: {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def demo_on_terminal(typed):
    return on_terminal([TESSERA, "demo", *shlex.split(typed)])


class CurvesTest(unittest.TestCase):

    def check(self, typed, mesh, engine="threads", steps=6):
        result = report(f"{typed} --steps {steps}")
        self.assertEqual(result["mesh"], mesh)
        self.assertEqual(result["engine"], engine)
        plain, sharded = result["plain_losses"], result["sharded_losses"]
        self.assertEqual(len(plain), steps)
        self.assertEqual(len(sharded), steps)
        self.assertLess(plain[-1], plain[0])
        difference = max(abs(a - b) / max(a, b) for a, b in zip(plain, sharded))
        self.assertAlmostEqual(result["largest_relative_difference"], difference,
                               delta=1e-18)
        allowed = 2 ** -8 if "bf16" in typed else 1e-4 if "f32" in typed else 1e-10
        self.assertLessEqual(difference, allowed)
        self.assertEqual(result["allowed_difference"], allowed)
        self.assertTrue(result["equal"])
        if "bf16" not in typed:
            self.assertEqual(result["text"], result["plain_text"])
        return result

    def test_threads(self):
        result = self.check("", "mesh(dp=2, tp=2)")
        self.assertEqual(result["ranks"], 4)
        self.assertEqual(result["dtype"], "f64")

    def test_a_number_of_ranks_alone_chooses_the_mesh(self):
        self.check("--ranks 2", "mesh(dp=1, tp=2)")
        self.check("--ranks 3", "mesh(dp=3, tp=1)")
        self.check("--ranks 1", "mesh(dp=1, tp=1)")

    def test_a_mesh_alone_chooses_the_ranks(self):
        self.check("--mesh tp=4", "mesh(dp=1, tp=4)")
        self.check("--mesh dp=2", "mesh(dp=2, tp=1)")
        # Neither heads, nor words, nor sequences divide evenly.
        self.check("--mesh dp=3,tp=3", "mesh(dp=3, tp=3)", steps=3)

    def test_f32(self):
        self.check("--ranks 4 --dtype f32", "mesh(dp=2, tp=2)")

    def test_recomputation_changes_no_bit_of_the_curve(self):
        again = self.check("--recompute", "mesh(dp=2, tp=2)")
        self.assertTrue(again["recompute"])
        self.assertEqual(again["sharded_losses"], report("--steps 6")["sharded_losses"])
        # What moved in the forward is kept: as many collectives as without.
        self.assertEqual(sum(r["count"] for r in again["communication"]),
                         sum(r["count"] for r in report("--steps 6")["communication"]))

    def test_bf16_under_autocast_with_a_scaled_loss(self):
        plain = self.check("--dtype bf16", "mesh(dp=2, tp=2)")
        f32 = report("--dtype f32 --steps 6")["plain_losses"]
        near = [abs(a - b) / b for a, b in zip(plain["plain_losses"], f32)]
        self.assertGreater(max(near), 1e-6)  # it is bf16
        self.assertLess(max(near), 2 ** -5)
        self.check("--dtype bf16 --recompute --mesh tp=2", "mesh(dp=1, tp=2)")

    def test_gloo(self):
        self.check("--engine gloo --ranks 2", "mesh(dp=1, tp=2)", "gloo")
        self.check("--engine gloo --ranks 1", "mesh(dp=1, tp=1)", "gloo", steps=2)
        self.check("--engine gloo --mesh tp=2 --dtype bf16 --recompute",
                   "mesh(dp=1, tp=2)", "gloo", steps=4)

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_mpi(self):
        self.check("--engine mpi --ranks 2 --mesh dp=2", "mesh(dp=2, tp=1)", "mpi")
        self.check("--engine mpi --mesh tp=2 --dtype bf16 --recompute",
                   "mesh(dp=1, tp=2)", "mpi", steps=4)


class RestartTest(unittest.TestCase):

    def check(self, typed, mesh, restart_mesh, ranks, steps=6):
        result = report(f"{typed} --steps {steps}")
        self.assertTrue(result["equal"])
        self.assertEqual(len(result["sharded_losses"]), steps)
        self.assertEqual(result["text"], result["plain_text"])
        self.assertEqual((result["mesh"], result["restart_mesh"]), (mesh, restart_mesh))
        self.assertEqual(result["restart_ranks"], ranks)
        self.assertEqual(result["restart_after"], steps // 2)
        # Three f64 numbers for each parameter, and the steps of the optimizer.
        elements = sum(math.prod(p["shape"]) for p in result["parameters"])
        self.assertEqual(result["checkpoint_bytes"],
                         3 * 8 * elements + 4 * len(result["parameters"]))
        return result

    def test_by_default_it_goes_on_with_a_rank_less(self):
        self.check("", "mesh(dp=2, tp=2)", "mesh(dp=3, tp=1)", 3)
        self.check("--ranks 3", "mesh(dp=3, tp=1)", "mesh(dp=1, tp=2)", 2)

    def test_threads_may_be_more(self):
        self.check("--ranks 1 --restart dp=2,tp=3", "mesh(dp=1, tp=1)",
                   "mesh(dp=2, tp=3)", 6, steps=5)

    def test_processes_that_are_left_over_wait(self):
        self.check("--engine gloo --mesh tp=2 --restart dp=1", "mesh(dp=1, tp=2)",
                   "mesh(dp=1, tp=1)", 1)

    def test_none_goes_through(self):
        result = report("--ranks 2 --steps 4 --restart none")
        self.assertTrue(result["equal"])
        self.assertNotIn("restart_mesh", result)

    def test_the_curve_of_a_training_that_begins_anew_would_show(self):
        # What a restart without its checkpoint would do: the losses of steps that
        # follow each other are too far apart to be equal by chance.
        losses = report("--ranks 2 --steps 6")["plain_losses"]
        self.assertGreater(min(abs(a - b) for a in losses[:3] for b in losses[3:]), 1e-3)

    def test_the_checkpoint_is_kept_on_request_only(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/half way"
            env = environment(TMPDIR=folder)
            done = call([TESSERA, "demo", "--ranks", "2", "--steps", "2",
                         "--checkpoint", path], env)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"saved after step 1 by 2 ranks \(1,778,836 "
                             r"bytes, \d+ ms\), loaded by 1 rank, dp=1,tp=1 \(\d+ ms\)")
            self.assertEqual(os.listdir(folder), ["half way"])
            listed = tessera("ckpt", "ls", path).stdout
            self.assertIn("exp_avg_sq", listed)
            done = call([TESSERA, "demo", "--ranks", "2", "--steps", "2"], env)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(os.listdir(folder), ["half way"])


class FsdpTest(unittest.TestCase):
    """With --fsdp every rank holds its part of all that training keeps."""

    def check(self, typed, mesh, ranks, steps=6):
        result = report(f"--fsdp {typed} --steps {steps}")
        self.assertEqual(result["mesh"], mesh)
        self.assertTrue(result["equal"])
        self.assertLessEqual(result["largest_relative_difference"], 1e-10)
        self.assertEqual(result["text"], result["plain_text"])
        whole = sum(math.prod(p["shape"]) for p in result["parameters"])
        # Parameters, gradients and two moments, in f64.
        self.assertEqual(result["replicated_bytes"], 4 * 8 * whole)
        self.assertEqual(len(result["rank_bytes"]), ranks)
        return result

    def test_what_ranks_hold_is_cut_by_their_number(self):
        for ranks in (2, 3, 4):
            with self.subTest(ranks=ranks):
                result = self.check(f"--ranks {ranks}", f"mesh(dp={ranks}, tp=1)", ranks)
                self.assertEqual(sum(result["rank_bytes"]), result["replicated_bytes"])
                self.assertLessEqual(max(result["rank_bytes"]),
                                     (1 / ranks + 0.05) * result["replicated_bytes"])
                held = [sum(p["held"][r] for p in result["parameters"])
                        for r in range(ranks)]
                self.assertEqual([4 * 8 * n for n in held], result["rank_bytes"])

    def test_on_top_of_tensor_parallelism(self):
        result = self.check("--mesh dp=2,tp=2", "mesh(dp=2, tp=2)", 4)
        self.assertLess(max(result["rank_bytes"]), 0.3 * result["replicated_bytes"])

    def test_gloo(self):
        self.check("--engine gloo --ranks 2", "mesh(dp=2, tp=1)", 2)

    def test_bars_stand_beside_data_parallelism(self):
        done = demo("--fsdp --ranks 2 --steps 2 --restart none", locale="C")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"data parallelism  #{40} 2,371,584\n"
                         r"  fsdp, rank 0 +#{20,21} [\d,]+\n  fsdp, rank 1 +#{19,20} ")
        self.assertRegex(done.stdout, r"all_gather dp +(fwd|bwd)")
        self.assertRegex(done.stdout, r"reduce_scatter dp +bwd")


class RecordsTest(unittest.TestCase):
    STEPS = 6

    def result(self):
        return report(f"--restart none --steps {self.STEPS}")

    def calls(self, cause, backward):
        return [row for row in self.result()["communication"]
                if row["cause"].startswith(cause) and row["backward"] == backward]

    def test_parts_tile_the_dim_that_is_cut(self):
        for p in self.result()["parameters"]:
            whole = math.prod(p["shape"])
            if p["cut_dim"] is None:
                self.assertEqual(p["held"], [whole, whole], p)
                continue
            (begin, middle), (then, end) = p["parts"]
            self.assertEqual((begin, then), (0, middle), p)
            self.assertEqual(end, p["shape"][p["cut_dim"]], p)
            self.assertEqual(sum(p["held"]), whole, p)

    def test_the_plan_is_that_of_megatron(self):
        cuts = {p["name"]: p["cut_dim"] for p in self.result()["parameters"]}
        for layer in range(LAYERS):
            for name, dim in (("attention.q", 0), ("attention.o", 1), ("mlp.up", 0),
                              ("mlp.down", 1)):
                self.assertEqual(cuts[f"blocks.{layer}.{name}.weight"], dim)
        self.assertEqual((cuts["tokens.weight"], cuts["head.weight"]), (0, 0))
        self.assertIsNone(cuts["positions"])

    def test_attention_and_mlp_add_up_once_per_layer(self):
        for layer in ("attention.o", "mlp.down"):
            rows = self.calls(f"blocks.*.{layer}, RowwiseParallel", False)
            self.assertEqual([(r["op"], r["mesh_dims"], r["count"]) for r in rows],
                             [("all_reduce", "tp", LAYERS * self.STEPS)])

    def test_every_gradient_byte_is_reduced_once_along_dp(self):
        held = sum(p["held"][0] for p in self.result()["parameters"])
        rows = [r for r in self.result()["communication"]
                if r["cause"] == "DataParallel"]
        self.assertEqual({(r["op"], r["mesh_dims"]) for r in rows},
                         {("all_reduce", "dp")})
        # An all_reduce of G bytes on 2 ranks moves 2 (G - G / 2).
        self.assertEqual(sum(r["bytes"] for r in rows), 8 * held * self.STEPS)

    def test_throughput_is_that_of_the_seconds(self):
        result = self.result()
        for run in ("plain", "sharded"):
            tokens = result[f"{run}_tokens_per_second"] * result[f"{run}_seconds"]
            self.assertAlmostEqual(tokens / self.STEPS, 16 * 32, places=6)


class TextTest(unittest.TestCase):

    def test_plain_lines_where_there_is_no_terminal(self):
        done = demo("--ranks 2 --steps 10", locale="C")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("step 10/10", "tokens/s", "sharded, dp=1,tp=2",
                     "the same training", "blocks.*.attention.q.weight x 2",
                     "sharded, dp=1,tp=1", "dp=1,tp=2, then dp=1,tp=1",
                     "####....", "....####", "RowwiseParallel", "all_reduce",
                     "The keeper ", "the plain model writes the same"):
            self.assertIn(word, done.stdout)
        self.assertNotIn("\r", done.stdout)
        done.stdout.encode("ascii")

    def test_a_terminal_gets_a_bar_that_redraws_itself(self):
        for typed in ("--ranks 2 --steps 3", "--ranks 2 --steps 3 --engine gloo"):
            with self.subTest(typed):
                shown = demo_on_terminal(typed)
                self.assertIn("\r  plain", shown)
                self.assertIn("\r  sharded, dp=1,tp=1", shown)
                self.assertIn("█", shown)
                self.assertIn("the same training", shown)

    def test_ascii_holds_ascii_only_on_a_terminal_too(self):
        demo_on_terminal("--ranks 2 --steps 2 --ascii").encode("ascii")


class ErrorTest(unittest.TestCase):

    CASES = {
        "--engine nccl": ["no engine 'nccl'", "threads, mpi, gloo"],
        "--mesh dp=2,tp": ["dp=2,tp"],
        "--mesh 2x2": ["dp", "tp", "'2x2'", "--mesh dp=2,tp=2"],
        "--mesh tp=2,dp=2": ["'tp=2,dp=2'"],
        "--mesh dp=2,tp=2 --ranks 3": ["dp=2,tp=2", "4 ranks", "there are 3"],
        "--mesh dp=17": ["dp", "at most 16", "sequences", "fewer ranks"],
        "--mesh tp=5": ["tp", "at most 4", "heads", "fewer ranks"],
        "--ranks 63": ["dp", "at most 16", "fewer ranks"],
        "--ranks 65": ["--ranks", "65"],
        "--ranks 0": ["--ranks", "0"],
        "--steps 0": ["--steps", "0"],
        "--steps many": ["--steps", "many"],
        "--dtype f8": ["f8", "f64"],
        "--restart dp": ["dp"],
        "--restart 2x2": ["--restart", "'2x2'", "--restart dp=2,tp=2"],
        "--restart tp=5": ["tp", "at most 4", "heads"],
        "--restart dp=2 --steps 1": ["--restart", "two steps", "--steps 1"],
        "--restart dp=3 --engine gloo --ranks 2": ["3 ranks", "2 processes"],
        "--checkpoint /": ["--checkpoint", "something at /", "another path"],
        "--restart none --checkpoint /a": ["--checkpoint", "no restart", "leave it out"],
    }

    def test_each_says_what_is_wrong_and_ends_with_2(self):
        for typed, words in self.CASES.items():
            with self.subTest(typed):
                done = demo(typed)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertTrue(done.stderr.startswith("tessera demo: "), done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
