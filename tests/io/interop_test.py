"""Checkpoints between this library, PyTorch and safetensors, bit for bit.

io_probe (TESSERA_BIN) reads what PyTorch and the safetensors package wrote, and
writes what they read. Every element of a tensor has a value of its own.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest
import warnings
import zipfile

import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import load_file, save_file

warnings.filterwarnings("ignore")
PROBE = os.path.join(os.environ["TESSERA_BIN"], "io_probe")
DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64",
          "int64", "float16", "bfloat16", "float32", "float64", "complex32",
          "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz",
          "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"]


def probe(*arguments):
    run = subprocess.run([PROBE, *map(str, arguments)], capture_output=True)
    if run.returncode:
        raise RuntimeError(run.stderr.decode())
    return run.stdout


def bits(tensor):
    """The bytes of a tensor in row-major order."""
    flat = tensor.detach().contiguous().flatten()
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


def of_dtype(name, rows=5):
    """5 x 4 elements whose bytes all differ from their neighbours'."""
    dtype = getattr(torch, name)
    size = torch.tensor([], dtype=dtype).element_size()
    if name == "bool":
        return (torch.arange(rows * 4) % 3 == 0).reshape(rows, 4)
    numbers = torch.arange(rows * 4 * size, dtype=torch.int64) * 37 + 11
    return (numbers % 251).to(torch.uint8).view(dtype).reshape(rows, 4)


def tensors():
    return {f"all.{name}": of_dtype(name) for name in DTYPES}


def nested():
    """A state dict with all that DCP flattens, and an optimizer's."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    model(torch.arange(6.).reshape(2, 3)).square().sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(), "optim": optimizer.state_dict(),
        "zero_d": torch.tensor(5.5), "empty": torch.zeros(0, 3),
        "transposed": torch.arange(24).reshape(4, 6).t(),
        "slice": torch.arange(60).reshape(10, 6)[2:9:3, 1:4],
        "expanded": torch.arange(3).reshape(3, 1).expand(3, 4),
        "last": torch.arange(48.).reshape(1, 3, 4, 4).to(
            memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(torch.arange(4.)),
        "plain": {"int": 7, "big": 2**40, "negative": -2**40, "edge": -2**63,
                  "float": 0.1, "inf": float("inf"), "text": "h\u00e9\u2713\n",
                  "bytes": bytes(range(256)), "none": None, "true": True,
                  "tuple": (1, 2.5, "x"), "list": [1, [2, 3]], "mixed": [1, "a", None],
                  "tensors": [torch.arange(3), 4], "dicts": [{"a": 1}]},
    }


def from_json(value):
    if isinstance(value, list):
        return [from_json(v) for v in value]
    if isinstance(value, dict):
        (tag, inner), = value.items()
        if tag == "tuple":
            return tuple(from_json(inner))
        if tag == "dict":
            return {from_json(k): from_json(v) for k, v in inner}
        if tag == "bytes":
            return bytes.fromhex(inner)
        return struct.unpack(">d", bytes.fromhex(inner))[0]
    return value


def lookup(state, path):
    for part in path:
        if isinstance(state, dict) and part not in state:
            part = int(part)  # DCP makes keys of dicts texts
        state = state[part]
    return state


class InteropTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def save(self, state, name="python"):
        path = self.folder / name
        dcp.save(state, checkpoint_id=str(path), no_dist=True)
        return path

    def listed(self, path):
        return json.loads(probe("list", path))

    def check_equals(self, path, state, count=None):
        """What io_probe reads at a path is the state dict."""
        entries = self.listed(path)["entries"]
        for entry in entries:
            expected = lookup(state, entry["path"])
            with self.subTest(entry["name"]):
                if "dtype" in entry:
                    self.assertEqual(entry["dtype"], str(expected.dtype)[6:])
                    self.assertEqual(entry["shape"], list(expected.shape))
                    self.assertEqual(probe("dump", path, entry["name"]), bits(expected))
                else:
                    value = from_json(entry["value"])
                    self.assertEqual(value, expected)
                    self.assertIs(type(value), type(expected))
        self.assertEqual(len(entries), count or len(entries))

    def check_loads(self, path, state):
        """PyTorch's own loader gives the state dict."""
        loaded = {}
        for key, value in state.items():
            loaded[key] = (torch.zeros_like(value).contiguous()
                           if isinstance(value, torch.Tensor) else value)
        dcp.load(loaded, checkpoint_id=str(path), no_dist=True)
        for key, value in state.items():
            with self.subTest(key):
                if isinstance(value, torch.Tensor):
                    self.assertEqual(bits(loaded[key]), bits(value))
                else:
                    self.assertEqual(loaded[key], value)

    def test_reads_all_dtypes_of_dcp(self):
        state = tensors()
        path = self.save(state)
        self.check_equals(path, state, len(DTYPES))
        probe("verify", path)

    def test_reads_nested_state_of_dcp(self):
        state = nested()
        self.check_equals(self.save(state), state)

    def test_opaque_values_fail_when_asked_for(self):
        path = self.save({"device": torch.device("cpu"), "huge": 2**70,
                          "dtype": torch.float32, "w": torch.arange(3)})
        entries = {e["name"]: e for e in self.listed(path)["entries"]}
        self.assertEqual(entries["device"]["value"], {"opaque": "torch.device"})
        self.assertIn("64 bits", entries["huge"]["value"]["opaque"])
        self.assertEqual(probe("dump", path, "w"), bits(torch.arange(3)))
        with self.assertRaisesRegex(RuntimeError, "object of Python"):
            probe("convert", path, self.folder / "x", "tessera")

    def test_python_loads_our_dcp(self):
        state = {**tensors(), "i": 2**40, "f": -0.0, "s": "h\u00e9", "b": b"\x00\xff",
                 "n": None, "t": (1, [2]), "e": torch.zeros(0, 3),
                 "z": torch.tensor(3.5)}
        python = self.save(state)
        for ranks in (1, 3):
            ours = self.folder / f"ours{ranks}"
            probe("convert", python, ours, "dcp", ranks)
            self.check_loads(ours, state)
            self.check_equals(ours, state, len(state))
            for file in ours.glob("*.distcp"):
                self.assertEqual(file.stat().st_size > 0, True)

    def test_python_loads_our_dcp_without_a_template(self):
        state = nested()
        ours = self.folder / "ours"
        probe("convert", self.save(state), ours, "dcp", 2)
        target = self.folder / "all.pt"
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
        dcp_to_torch_save(ours, target)
        loaded = torch.load(target, weights_only=False)
        self.assertEqual(bits(loaded["transposed"]), bits(state["transposed"]))
        self.assertEqual(loaded["plain"]["bytes"], bytes(range(256)))
        self.assertEqual(loaded["optim"]["param_groups"][0]["betas"], (0.9, 0.999))

    def test_items_of_ours_are_sound_zips(self):
        ours = self.folder / "ours"
        probe("convert", self.save({"w": torch.arange(100)}), ours, "dcp")
        with zipfile.ZipFile(ours / "__0_0.distcp") as archive:
            self.assertIsNone(archive.testzip())

    def test_all_formats_keep_everything(self):
        state = nested()
        first = self.save(state)
        second = self.folder / "tessera"
        third = self.folder / "dcp"
        probe("convert", first, second, "tessera", 4)
        self.check_equals(second, state)
        probe("verify", second)
        probe("convert", second, third, "dcp", 2)
        self.check_equals(third, state)
        probe("verify", third)
        fourth = self.folder / "safetensors"
        probe("convert", third, fourth, "safetensors", 3)
        self.check_equals(fourth, state)

    def test_reads_safetensors_of_the_library(self):
        names = [n for n in DTYPES if n not in ("complex32", "complex128")]
        state = {f"t.{name}": of_dtype(name) for name in names}
        state |= {"z": torch.tensor(2.5), "e": torch.zeros(3, 0)}
        path = self.folder / "model.safetensors"
        save_file(state, path, metadata={"format": "pt"})
        for place in (path, self.folder):
            entries = self.listed(place)["entries"]
            self.assertEqual({e["name"] for e in entries}, set(state))
            for entry in entries:
                with self.subTest(entry["name"]):
                    tensor = state[entry["name"]]
                    self.assertEqual(entry["shape"], list(tensor.shape))
                    self.assertEqual(probe("dump", place, entry["name"]), bits(tensor))

    def test_the_library_reads_our_safetensors(self):
        names = [n for n in DTYPES if n not in (
            "complex32", "complex128", "float8_e8m0fnu", "float4_e2m1fn_x2")]
        state = {f"t.{name}": of_dtype(name) for name in names}
        path = self.folder / "one.safetensors"
        probe("convert", self.save(state), path, "safetensors")
        loaded = load_file(path)
        self.assertEqual(set(loaded), set(state))
        for name, tensor in state.items():
            self.assertEqual(bits(loaded[name]), bits(tensor))
        with safe_open(path, framework="pt") as file:
            self.assertEqual(file.metadata()["format"], "pt")

    def test_pytorch_reads_our_sharded_safetensors(self):
        state = {"a": torch.arange(35.).reshape(7, 5), "b": torch.arange(4)}
        ours = self.folder / "ours"
        probe("convert", self.save(state), ours, "safetensors", 3)
        self.assertEqual(sorted(p.name for p in ours.iterdir()), [
            f"shard-0000{i}-model-00001-of-00001.safetensors" for i in (1, 2, 3)])
        reader = dcp.HuggingFaceStorageReader(str(ours))
        loaded = {k: torch.zeros_like(v) for k, v in state.items()}
        dcp.load(loaded, storage_reader=reader, no_dist=True)
        for name, tensor in state.items():
            self.assertEqual(bits(loaded[name]), bits(tensor))

    def test_reads_what_pytorch_writes_as_safetensors(self):
        state = {"a": torch.arange(35.).reshape(7, 5), "b": torch.arange(4)}
        path = self.folder / "hf"
        writer = dcp.HuggingFaceStorageWriter(
            str(path), fqn_to_index_mapping={"a": 1, "b": 2})
        dcp.save(state, storage_writer=writer, no_dist=True)
        self.assertTrue((path / "model.safetensors.index.json").exists())
        self.check_equals(path, state, 2)

    def test_damage_that_pytorch_does_not_see_is_found(self):
        state = {"w": torch.arange(64.)}
        path = self.save(state)
        data = path / "__0_0.distcp"
        good = data.read_bytes()
        at = good.index(bits(state["w"])) + 100
        data.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
        loaded = {"w": torch.zeros(64)}
        dcp.load(loaded, checkpoint_id=str(path), no_dist=True)
        self.assertNotEqual(bits(loaded["w"]), bits(state["w"]))
        with self.assertRaisesRegex(RuntimeError, "__0_0.distcp.*is damaged: its CRC32"):
            probe("dump", path, "w")

    def test_what_safetensors_lacks_is_an_error(self):
        path = self.save({"c": of_dtype("complex128")})
        with self.assertRaisesRegex(RuntimeError, "complex128, which safetensors"):
            probe("convert", path, self.folder / "x", "safetensors")


if __name__ == "__main__":
    unittest.main()
