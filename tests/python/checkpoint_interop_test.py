"""Checkpoints of PyTorch's processes (DCP) and of the package safetensors, both ways,
into sharded tensors of other meshes: equal bit for bit."""
import concurrent.futures
import json
import math
import os
import subprocess
import time

import processes
import pytest
import states
import tessera
import torch
from safetensors.torch import load_file, save_file
from tessera import checkpoint

# Where this library has a state: a mesh, and placements of tensors of 3 dims.
PLACES = [((3,), "S(0)"), ((2, 2), "S(1) S(0)"), ((1,), "R"), ((2,), "S(2)"),
          ((2, 2), "S(0) S(0)")]


def on_mesh(body, shape):
    return tessera.run_ranks(
        math.prod(shape), lambda: body(tessera.init_device_mesh("cpu", shape)),
        deadline=100)


def placed(tensor, mesh, notation):
    """A sharded tensor of any dtype, zero, without communication."""
    placements = [tessera.Replicate() if p.kind == "shard" and p.dim >= tensor.dim()
                  else p for p in tessera.parse_placements(notation)]
    to = tessera.empty(list(tensor.shape), mesh, placements, dtype=tensor.dtype)
    tessera.to_local(to).flatten().view(torch.uint8).zero_()
    return to


def sharded(tensor, mesh, notation):
    """The same with the values of a plain tensor."""
    to = placed(tensor, mesh, notation)
    fill(to, tensor)
    return to


def parts(to, tensor):
    """Of each box of this rank: its memory, and its part of a plain tensor."""
    boxes = tessera.chunk_list(to)
    assert len(boxes) <= 1
    local = tessera.to_local(to)
    for box in boxes:
        if math.prod(box.sizes):
            yield local, tensor[tuple(
                slice(o, o + s) for o, s in zip(box.offsets, box.sizes))]


def fill(to, tensor):
    for local, part in parts(to, tensor):
        local.copy_(part)


def check(name, got, want):
    assert list(got.shape) == list(want.shape) and got.dtype == want.dtype, name
    if not tessera.is_dtensor(got):
        assert states.bits(got) == states.bits(want), name
    else:
        for local, part in parts(got, want):
            assert states.bits(local) == states.bits(part), name


def training(mesh, notation):
    placements = tessera.parse_placements(notation)
    whole = [tessera.Replicate()] * mesh.ndim

    def place(parameter):
        fits = all(p.kind != "shard" or p.dim < parameter.dim() for p in placements)
        tessera.make_dtensor_(parameter, mesh, placements if fits else whole)
        return parameter

    return states.training(place)


def load_theirs(mesh, notation, path, expected):
    """What Python's processes saved, in a model and tensors of a mesh."""
    net, optimizer = training(mesh, notation)
    state = {"app": checkpoint.state_dict(net, optimizer),
             "all": states.map_tensors(lambda t: placed(t, mesh, notation),
                                       states.tensors()),
             "values": states.map_values(lambda v: None, states.values())}
    checkpoint.load(state, path)
    assert state["values"] == states.values()
    states.for_each_pair(check, "all", state["all"], states.tensors())
    now = checkpoint.state_dict(net, optimizer)
    states.for_each_pair(check, "model", now["model"], expected["model"])
    states.for_each_pair(check, "optimizer", now["optimizer"], expected["optimizer"])
    return net, optimizer


def save_ours(mesh, notation, theirs, expected, path):
    net, optimizer = load_theirs(mesh, notation, theirs, expected)
    checkpoint.save(
        {"app": checkpoint.state_dict(net, optimizer),
         "all": states.map_tensors(lambda t: sharded(t, mesh, notation),
                                   states.tensors()),
         "values": states.values()}, path, format="dcp")


def save_safetensors(mesh, notation, path):
    checkpoint.save(states.map_tensors(lambda t: sharded(t, mesh, notation),
                                       states.safe_tensors()),
                    path, format="safetensors")


IS_LONG = bool(os.environ.get("TESSERA_LONG"))
LONG = pytest.mark.skipif(not IS_LONG, reason="a long form")


@pytest.mark.parametrize("size", [pytest.param(2, marks=LONG), 4])
def test_dcp_both_ways_with_processes_of_pytorch(tmp_path, monkeypatch, size):
    monkeypatch.setenv("TESSERA_CHECKPOINTS", str(tmp_path))
    places = PLACES if IS_LONG else PLACES[:3]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(processes.run_job, "dcp_peer.py", size)
        try:
            end = time.monotonic() + 100
            while not (tmp_path / "expected.pt").exists() and not job.done():
                assert time.monotonic() < end
                time.sleep(0.05)
            if job.done():
                job.result()  # raises what went wrong
            theirs, expected = tmp_path / "python", torch.load(tmp_path / "expected.pt")
            for i, (shape, notation) in enumerate(places):
                on_mesh(lambda mesh: save_ours(mesh, notation, theirs, expected,
                                               tmp_path / f"ours_{i}"), shape)
            on_mesh(lambda mesh: save_safetensors(mesh, "S(0)", tmp_path / "safetensors"),
                    (3,))
        finally:
            (tmp_path / "ready").touch()
        assert job.result() == [f"rank {r}: {len(places)}\n" for r in range(size)]
    # Elements have the checksums of their zips, on both sides.
    assert checkpoint.verify(theirs) == checkpoint.verify(tmp_path / "ours_0")


@pytest.mark.parametrize("shape, notation", PLACES)
def test_files_of_the_package_safetensors_are_loaded_into_shards(
        tmp_path, shape, notation):
    tensors = states.safe_tensors()
    save_file(tensors, tmp_path / "model.safetensors")
    names = list(tensors)
    files = {"model-00001-of-00002.safetensors": names[::2],
             "model-00002-of-00002.safetensors": names[1::2]}
    (tmp_path / "many").mkdir()
    for file, its in files.items():
        save_file({name: tensors[name] for name in its}, tmp_path / "many" / file)
    (tmp_path / "many/model.safetensors.index.json").write_text(json.dumps({
        "metadata": {"total_size": sum(t.nbytes for t in tensors.values())},
        "weight_map": {name: file for file, its in files.items() for name in its}}))

    def load(mesh, path):
        state = states.map_tensors(lambda t: placed(t, mesh, notation), tensors)
        checkpoint.load(state, path)
        states.for_each_pair(check, "", state, tensors)

    for path in (tmp_path / "model.safetensors", tmp_path / "many"):
        on_mesh(lambda mesh: load(mesh, path), shape)


@pytest.mark.parametrize("shape, notation", PLACES)
def test_the_package_safetensors_loads_what_we_saved(tmp_path, shape, notation):
    """A sharded save is in as many pieces as the mesh has; `ckpt convert` joins them,
    in one file or in several with an index."""
    on_mesh(lambda mesh: save_safetensors(mesh, notation, tmp_path / "ours"), shape)
    tool = os.path.join(os.environ["TESSERA_BIN"], "tessera")
    for to, more in [("one.safetensors", []), ("many", ["--max-file-size", "400B"])]:
        subprocess.run([tool, "ckpt", "convert", tmp_path / "ours", tmp_path / to,
                        "--format", "safetensors", *more],
                       check=True, capture_output=True)
    index = json.loads((tmp_path / "many/model.safetensors.index.json").read_text())
    loaded = {}
    for file in set(index["weight_map"].values()):
        its = load_file(tmp_path / "many" / file)
        assert all(index["weight_map"][name] == file for name in its)
        loaded.update(its)
    assert len(set(index["weight_map"].values())) > 2
    for got in (loaded, load_file(tmp_path / "one.safetensors")):
        assert got.keys() == states.safe_tensors().keys()
        states.for_each_pair(check, "", got, states.safe_tensors())
