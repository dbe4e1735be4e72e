#!/usr/bin/env python3
"""tessera ckpt: lists, verifies, converts, reshards and compares checkpoints.

    python3 tests/cli/ckpt_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""

import json
import math
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import tempfile
import unittest

from command_line import TESSERA, environment, on_terminal, tessera

LAYERS = 3
VALUES = {"lr": 0.5, "epoch": 3, "note": "a \u00fc text"}


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def example_tensors():
    """Returns dtype, shape and bytes by name."""
    tensors = {}
    for i in range(LAYERS):
        tensors[f"model.layers.{i}.weight"] = (
            "F32", [5, 6], floats(*(k / 7 + i for k in range(30))))
        tensors[f"model.layers.{i}.bias"] = (
            "BF16", [5], struct.pack("<5H", *(0x3F80 + k for k in range(5))))
    tensors["model.norm"] = ("F64", [3], struct.pack("<3d", 1, -2, 0.1))
    tensors["optimizer.step"] = ("I64", [], struct.pack("<q", 2**62 + 1))
    tensors["empty"] = ("F32", [0, 2], b"")
    tensors["large"] = ("I32", [700, 1000],
                        struct.pack("<700000i", *range(700000)))
    return tensors


def write_safetensors(path, tensors, values=None):
    header, data = {}, []
    if values:
        state = {"shapes": {}, "paths": {},
                 "values": [{"name": n, "value": v} for n, v in values.items()]}
        header["__metadata__"] = {"TESSERA_STATE": json.dumps(state)}
    end = 0
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [end, end + len(content)]}
        data.append(content)
        end += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    return path


def flip_byte(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


class CkptTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ckpt_test"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.example = write_safetensors(cls.folder / "example.safetensors",
                                        example_tensors(), VALUES)
        for name in ("tessera", "dcp"):
            done = tessera("ckpt", "convert", str(cls.example),
                           str(cls.folder / name), "--format", name)
            assert done.returncode == 0, done.stderr

    def setUp(self):
        self.here = pathlib.Path(tempfile.mkdtemp(dir=self.folder))

    def ckpt(self, *args, code=0):
        done = tessera("ckpt", *map(str, args))
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def json(self, *args, code=0):
        text = self.ckpt(*args, "--json", code=code).stdout
        self.assertEqual(text.count("\n"), 1)
        return json.loads(text)

    def fails(self, words, *args, code=2):
        done = self.ckpt(*args, code=code)
        self.assertEqual(done.stdout, "")
        self.assertTrue(done.stderr.startswith("tessera ckpt: "), done.stderr)
        for word in words:
            self.assertIn(str(word), done.stderr)


class LsTest(CkptTest):

    def test_table_is_a_tree_within_80_columns(self):
        text = self.ckpt("ls", self.folder / "dcp").stdout
        for line in text.splitlines():
            self.assertLessEqual(len(line), 80)
        rows = [line.split() for line in text.splitlines()]
        self.assertIn("  layers", text)
        self.assertIn(["weight", "float32", "[5,", "6]", "whole", "120", "B"], rows)
        self.assertIn(["epoch", "=", "3"], rows)
        self.assertIn("dcp, 10 tensors, 3 values, 2.7 MiB in 1 file", text)

    def test_long_names_and_shapes_stay_within_80_columns(self):
        names = {"block." * 30 + "weight": ("F32", [1] * 40, floats(1)),
                 "x" * 200: ("F32", [1], floats(1))}
        path = write_safetensors(self.here / "long.safetensors", names,
                                 {"text": "y" * 300})
        for line in self.ckpt("ls", path).stdout.splitlines()[2:]:
            self.assertLessEqual(len(line), 80)

    def test_json_has_every_tensor_and_value(self):
        for name in ("example.safetensors", "tessera", "dcp"):
            with self.subTest(name):
                found = self.json("ls", self.folder / name)
                tensors = {t["name"]: t for t in found["tensors"]}
                self.assertEqual(tensors.keys(), example_tensors().keys())
                for key, (_, shape, content) in example_tensors().items():
                    self.assertEqual(tensors[key]["shape"], shape)
                    self.assertEqual(tensors[key]["bytes"], len(content))
                self.assertEqual({v["name"]: v["value"] for v in found["values"]},
                                 VALUES)

    def test_parts_of_tensors_are_shown(self):
        to = self.here / "cut"
        self.ckpt("reshard", self.folder / "dcp", to, "--to", "2x2",
                  "--placements", "S(0) S(1)")
        self.assertIn("2 x 2", self.ckpt("ls", to).stdout)
        large = next(t for t in self.json("ls", to)["tensors"]
                     if t["name"] == "large")
        self.assertEqual(
            [(c["offsets"], c["sizes"]) for c in large["chunks"]],
            [([i, j], [350, 500]) for i in (0, 350) for j in (0, 500)])


class VerifyTest(CkptTest):

    def test_whole_checkpoints_are_ok(self):
        for name, sums in [("example.safetensors", False), ("tessera", True),
                           ("dcp", True)]:
            with self.subTest(name):
                found = self.json("verify", self.folder / name)
                self.assertTrue(found["ok"])
                self.assertEqual(found["has_checksums"], sums)
                self.assertEqual(found["unchecked"] == "", name == "tessera")
        self.assertIn("no checksums", self.ckpt("verify", self.example).stdout)
        self.assertIn(".metadata has no checksum",
                      self.ckpt("verify", self.folder / "dcp").stdout)

    def test_a_flipped_byte_is_found_and_named(self):
        for name in ("tessera", "dcp"):
            with self.subTest(name):
                copy = self.here / name
                shutil.copytree(self.folder / name, copy)
                data = next(p for p in copy.iterdir()
                            if p.suffix in (".bin", ".distcp"))
                flip_byte(data, data.stat().st_size // 2)
                found = self.json("verify", copy, code=1)
                self.assertFalse(found["ok"])
                self.assertEqual([p["name"] for p in found["problems"]], ["large"])
                text = self.ckpt("verify", copy, code=1).stdout
                self.assertIn("damaged: large: ", text)
                self.fails(["large" if name == "tessera" else data.name],
                           "convert", copy, self.here / f"to_{name}",
                           "--format", "tessera", code=1)
                self.assertFalse((self.here / f"to_{name}").exists())


class ConvertTest(CkptTest):

    def test_there_and_back_is_equal(self):
        formats = ["tessera", "dcp", "safetensors"]
        for first in formats:
            for second in formats:
                with self.subTest(first, second=second):
                    a, b = self.here / f"{first}.{second}", self.here / "b"
                    self.ckpt("convert", self.example, a, "--format", first)
                    self.ckpt("convert", a, b, "--format", second, "--overwrite")
                    self.assertTrue(self.json("diff", b, self.example)["equal"])
                    self.assertTrue(self.json("verify", b)["ok"])

    def test_one_safetensors_file_holds_the_same_bytes(self):
        to = self.here / "one.safetensors"
        self.ckpt("convert", self.folder / "dcp", to, "--format", "safetensors")
        content = to.read_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:8 + size])
        for name, (dtype, shape, expected) in example_tensors().items():
            begin, end = header[name]["data_offsets"]
            self.assertEqual((header[name]["dtype"], header[name]["shape"]),
                             (dtype, shape))
            self.assertEqual(content[8 + size + begin:8 + size + end], expected)

    def test_max_file_size_gives_names_and_index_of_hugging_face(self):
        to = self.here / "many"
        self.json("convert", self.example, to, "--format", "safetensors",
                  "--max-file-size", "300B")
        files = sorted(p.name for p in to.glob("*.safetensors"))
        count = len(files)
        self.assertGreater(count, 2)
        self.assertEqual(files, [f"model-{i + 1:05}-of-{count:05}.safetensors"
                                 for i in range(count)])
        index = json.loads((to / "model.safetensors.index.json").read_text())
        self.assertEqual(index["weight_map"].keys(), example_tensors().keys())
        self.assertTrue(self.json("diff", to, self.example)["equal"])
        self.fails(["--max-file-size", "folder"], "convert", self.example,
                   self.here / "x.safetensors", "--format", "safetensors",
                   "--max-file-size", "300B")
        self.fails(["--max-file-size"], "convert", self.example, self.here / "x",
                   "--format", "dcp", "--max-file-size", "300B")

    def test_what_is_there_is_replaced_only_when_told(self):
        to = self.here / "to"
        self.ckpt("convert", self.example, to, "--format", "dcp")
        self.fails([to, "--overwrite"], "convert", self.example, to,
                   "--format", "tessera")
        self.ckpt("convert", self.example, to, "--format", "tessera",
                  "--overwrite")
        self.assertEqual(self.json("ls", to)["format"], "tessera")
        self.ckpt("convert", to, to, "--format", "dcp", "--overwrite")
        self.assertTrue(self.json("diff", to, self.example)["equal"])

    def test_a_full_disk_leaves_nothing(self):
        def limit():  # a write beyond it fails with EFBIG
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        to = self.here / "to"
        done = subprocess.run(
            ["sh", "-c", 'trap "" XFSZ; exec "$@"', "sh", TESSERA, "ckpt", "convert",
             str(self.example), str(to), "--format", "tessera"],
            preexec_fn=limit, env=environment(), capture_output=True, text=True,
            timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("EFBIG", done.stderr)
        self.assertEqual(list(self.here.iterdir()), [])


class LinksTest(CkptTest):

    def test_links_as_in_the_cache_of_hugging_face_are_followed_on_request(self):
        snapshot = self.here / "snapshot"
        snapshot.mkdir()
        (snapshot / "model.safetensors").symlink_to(self.example)
        to = [self.here / "to", "--format", "tessera"]
        for command in (["ls", snapshot], ["verify", snapshot], ["convert", snapshot, *to],
                        ["reshard", snapshot, *to, "--to", "2"],
                        ["diff", self.example, snapshot]):
            with self.subTest(command[0]):
                self.fails(["symbolic link", "follow_links"], *command, code=1)
                self.ckpt(*command, "--follow-links")
                shutil.rmtree(self.here / "to", ignore_errors=True)


class ReshardTest(CkptTest):

    def test_contents_stay_and_parts_are_those_of_the_mesh(self):
        for name in ("tessera", "dcp", "example.safetensors"):
            with self.subTest(name):
                to = self.here / f"to_{name[:3]}"
                done = self.json("reshard", self.folder / name, to,
                                 "--to", "dp=2,tp=4")
                self.assertEqual(done["files"], 8)
                self.assertTrue(self.json("diff", to, self.example)["equal"])
                parts = {t["name"]: [c["sizes"] for c in t["chunks"]
                                     if math.prod(c["sizes"])]
                         for t in self.json("ls", to)["tensors"]}
                # 5 rows over 2: 3 2, and those over 4: one each
                self.assertEqual(parts["model.layers.0.weight"], [[1, 6]] * 5)
                self.assertEqual(parts["optimizer.step"], [[]])

    def test_copies_are_written_once(self):
        to = self.here / "to"
        self.ckpt("reshard", self.folder / "dcp", to, "--to", "2x2",
                  "--placements", "R S(1)", "--format", "tessera")
        found = self.json("ls", to)
        parts = {t["name"]: len(t["chunks"]) for t in found["tensors"]}
        self.assertEqual(found["format"], "tessera")
        self.assertEqual(parts["large"], 2)
        self.assertEqual(parts["model.norm"], 1)  # has no dim 1
        self.assertTrue(self.json("diff", to, self.example)["equal"])

    def test_more_ranks_than_are_written_at_a_time(self):
        to = self.here / "to"
        self.ckpt("reshard", self.folder / "dcp", to, "--to", "70")
        self.assertTrue(self.json("diff", to, self.example)["equal"])

    def test_wrong_meshes_and_placements(self):
        for words, args in [
            (["P(sum)"], ["--to", "2", "--placements", "P(sum)"]),
            (["2 placements"], ["--to", "2", "--placements", "S(0) R"]),
            (["2xx"], ["--to", "2xx"]),
        ]:
            self.fails(words, "reshard", self.example, self.here / "x", *args)


class DiffTest(CkptTest):

    def changed(self, name, dtype, shape, a, b):
        """Returns how ckpt diff says that two contents of one tensor differ."""
        left = write_safetensors(self.here / "a.safetensors", {name: (dtype, shape, a)})
        right = write_safetensors(self.here / "b.safetensors",
                                  {name: (dtype, shape, b)})
        found = self.json("diff", left, right, code=1)
        self.assertEqual(len(found["tensors"]), 1)
        return found["tensors"][0]

    def test_a_changed_element_is_found(self):
        tensors = example_tensors()
        dtype, shape, content = tensors["large"]
        tensors["large"] = (dtype, shape, content[:4 * 345678] +
                            struct.pack("<i", -5) + content[4 * 345679:])
        other = write_safetensors(self.here / "b.safetensors", tensors,
                                  {**VALUES, "epoch": 4})
        found = self.json("diff", self.folder / "dcp", other, code=1)
        self.assertFalse(found["equal"])
        self.assertEqual(found["tensors"], [
            {"name": "large", "elements": 700000, "different": 1,
             "first": [345, 678], "nan_on_one_side": 0, "largest": 345683}])
        self.assertEqual(found["values"], [{"name": "epoch", "a": 3, "b": 4}])
        text = self.ckpt("diff", self.folder / "dcp", other, code=1).stdout
        self.assertIn("345683", text)
        self.assertIn("[345, 678]", text)
        self.assertIn("another value: epoch: 3, in B 4", text)

    def test_names_and_types(self):
        a = write_safetensors(self.here / "a.safetensors", {
            "same": ("F32", [1], floats(1)), "left": ("F32", [1], floats(1)),
            "other": ("F32", [2], floats(1, 2))})
        b = write_safetensors(self.here / "b.safetensors", {
            "same": ("F32", [1], floats(1)), "right": ("F32", [1], floats(1)),
            "other": ("F64", [1], floats(1, 2))})
        found = self.json("diff", a, b, code=1)
        self.assertEqual((found["only_a"], found["only_b"]), (["left"], ["right"]))
        self.assertEqual(found["types"], [
            {"name": "other", "a": "float32[2]", "b": "float64[1]"}])
        self.ckpt("diff", a, b, code=1)

    def test_integers_are_exact(self):
        found = self.changed("w", "I64", [2], struct.pack("<2q", -2**63, 0),
                             struct.pack("<2q", 2**63 - 1, 0))
        self.assertEqual(found["largest"], 2**64 - 1)

    def test_floats_of_all_sizes(self):
        for dtype, a, b, largest in [
            ("F64", struct.pack("<d", 1), struct.pack("<d", 1 + 2**-52), 2**-52),
            ("F32", floats(1), floats(-2), 3),
            ("F16", b"\x00\x3c", b"\x01\x3c", 2**-10),
            ("BF16", b"\x80\x3f", b"\x81\x3f", 2**-7),
            ("F8_E4M3", b"\x38", b"\x39", 0.125),
            ("F8_E5M2", b"\x3c", b"\x3d", 0.25),
            ("C64", floats(0, 0), floats(3, 4), 5),
            ("F32", floats(math.inf), floats(1), "inf"),
            ("F32", floats(0.0), floats(-0.0), 0),
        ]:
            with self.subTest(dtype):
                found = self.changed("w", dtype, [1], a, b)
                self.assertEqual((found["different"], found["largest"]), (1, largest))

    def test_nan_is_equal_to_itself_and_counted_beside_numbers(self):
        nan = floats(math.nan, math.nan, 1)
        found = self.changed("w", "F32", [3], nan, floats(math.nan, 2, 1))
        self.assertEqual((found["different"], found["nan_on_one_side"]), (1, 1))


class ErrorTest(CkptTest):

    def test_paths_that_hold_no_checkpoint(self):
        self.fails([self.here, "no checkpoint"], "ls", self.here)
        self.fails(["nope", "No such file"], "ls", self.here / "nope", code=1)
        self.fails([self.here / "no", "make it first"], "convert", self.example,
                   self.here / "no" / "x", "--format", "dcp")
        text = self.here / "notes.txt"
        text.write_text("no tensors here, only words")
        self.fails([text], "verify", text, code=1)

    def test_a_folder_of_steps_says_which(self):
        self.ckpt("convert", self.example, self.here / "step_000000000010",
                  "--format", "tessera")
        self.fails(["step_000000000010"], "ls", self.here)

    def test_a_newer_version_says_so(self):
        copy = self.here / "newer"
        shutil.copytree(self.folder / "tessera", copy)
        manifest = copy / "manifest.jsonl"
        manifest.write_bytes(manifest.read_bytes().replace(
            b'"version":1', b'"version":2', 1))
        self.fails([manifest], "ls", copy, code=1)

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_no_permission(self):
        path = write_safetensors(self.here / "a.safetensors", example_tensors())
        path.chmod(0)
        self.fails([path, "Permission denied", "who may read"], "ls", path, code=1)
        self.here.chmod(0o500)
        self.addCleanup(self.here.chmod, 0o700)
        self.fails(["Permission denied"], "convert", self.example, self.here / "x",
                   "--format", "dcp", code=1)

    def test_usage(self):
        self.fails(["subcommand"])
        self.fails(["PATH"], "ls")
        self.fails(["dcp2", "tessera, dcp and safetensors"], "convert", self.example,
                   self.here / "x", "--format", "dcp2")


class ProgressTest(CkptTest):

    def test_lines_on_standard_error_when_asked_for(self):
        done = self.ckpt("verify", self.folder / "dcp", "--progress")
        self.assertRegex(done.stderr, r"verifying 100 %  2\.7 MiB of 2\.7 MiB")
        done = self.ckpt("diff", self.folder / "dcp", self.example)
        self.assertEqual(done.stderr, "")

    def test_a_table_on_a_terminal(self):
        self.assertIn("model", on_terminal([TESSERA, "ckpt", "ls", str(self.example)]))


if __name__ == "__main__":
    unittest.main(verbosity=1)
