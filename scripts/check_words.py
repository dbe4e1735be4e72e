#!/usr/bin/env python3
"""Checks that identifiers of src/ use the words of the field, not older ones.

REFUSED lists words that name an idea for which the field has another one. A word is
a sequence of the parts of an identifier, so `spare parts` refuses SpareParts,
spare_parts_ and kSpareParts; `cut` refuses CutCall, is_cut and cut_, but not
`executed`. Only code counts: comments, texts, includes and names of files do not.

Each row may name the folders or files in which the word is refused (elsewhere it
means something else), and identifiers that are allowed, with the reason.

  scripts/check_words.py [--root FOLDER]
"""
import argparse
import fnmatch
import pathlib
import re
import sys
from typing import NamedTuple

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
TOKEN = re.compile(
    r"^[ \t]*\#[ \t]*include[^\n]*"
    r"|//(?:\\\n|[^\n])*|/\*.*?\*/"
    r'|R"(?P<raw>\w*)\(.*?\)(?P=raw)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|\d[\w.']*"
    r"|'(?:\\.|[^'\\\n])*'"
    r"|(?P<word>[A-Za-z_]\w*)", re.DOTALL | re.MULTILINE)
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Refused(NamedTuple):
    words: str  # alternatives, separated by |
    instead: str
    # Folders (with a slash at the end) and patterns of file names; none: all of src.
    where: tuple = ()
    not_in: tuple = ()
    allowed: tuple = ()  # (identifiers, reason)


LAYOUT_CUTS = (
    "cuts cut_runs Cut CutTarget",
    "Layout::cuts() and Layout::cut_runs() are public; Cut is what they are made of")

REFUSED = [
    Refused("spare|spares", "pool: ObjectPool"),
    Refused("wrapper form|wrapper forms|result form|result forms", "template"),
    Refused("piece|pieces", "copy: StridedCopy", ("comm/", "tensor/"),
            allowed=(("in_pieces", "an MPI message in several of INT_MAX bytes"),
                     ("piece", "a piece of text that is hashed: call_cause.cpp"),
                     ("pieces", "tensors that are concatenated: fill_device.cpp"))),
    Refused("run part|part unlocked|open parts", "chunk", ("engine/",)),
    Refused("pull|pulls|pulled", "direct read: reads, shares_memory",
            allowed=(("pull", "the variable TESSERA_PACK asks about it"),)),
    Refused("extent|extents", "GlobalIndexRanges, ranges"),
    Refused("place range", "IndexRange"),
    Refused("place|places", "group_rank", ("engine/",),
            allowed=(("in_place check_in_place is_in_place",
                      "written where it lies"),)),
    Refused("place|places", "linear_index", ("random/",),
            allowed=(("in_place in_place_", "written where it lies"),)),
    Refused("place|places", "bucket, target",
            ("dispatch_cache.*", "decision_cache.*", "cut.*")),
    Refused("word|words", "key_data",
            ("dispatch_cache.*", "decision_cache.*", "call_key.*"),
            allowed=(("word", "64 bits of a key"),)),
    Refused("news|tell", "PeerEvent, notify, poll_events", ("engine/",)),
    Refused("wire|wires", "Channel"),
    Refused("network", "Transport",
            allowed=(("DistNetworkError", "c10d's own"),)),
    Refused("transit|transits", "Transfer"),
    Refused("facts", "fingerprint"),
    Refused("disagreement", "mismatch"),
    Refused("lane|lanes", "CallSequence", ("comm/",)),
    Refused("cut|cuts|recut", "shard, split, slice", not_in=("layout/", "plan/"),
            allowed=(LAYOUT_CUTS,
                     ("cuts_ drop_cuts", "ViewMaker's copy of Layout::cuts()"))),
    Refused("turn|turns|turned", "order", ("layout/", "plan/", "rules/")),
    Refused("addend|addends", "partial, unreduced"),
    Refused("whole", "replicated, unsharded",
            allowed=(("whole", "whole(shape), DeviceMesh::whole() and "
                               "RuleTable::whole() are public"),)),
    Refused("settle|settled|settles|unsettled",
            "wait, reduce_to, commit, without_partials"),
    Refused("moving meta", "meta_nowait"),
    Refused("shard cell|shown window", "ViewSource, ViewOf",
            allowed=(("ShownWindow", "what as_strided() shows of a shard"),)),
    Refused("way|ways|by others", "Strategy, kDecomposed",
            allowed=(("under_way under_way_ is_on_the_way", "not finished"),
                     ("kWays", "a cache has ways"))),
    Refused("special", "custom kernel",
            allowed=(("add_special_functions", "torch.special"),)),
    Refused("run decided|run direct|run outside|slowly",
            "run_decision, run_cached, run_off_mesh, run_uncached"),
    Refused("ruled", "RuleOperands"),
    Refused("lent", "Borrowed"),
    Refused("stand in|bring arguments|bring back",
            "local_argument, redistribute_inputs, write_back"),
    Refused("fresh local", "refreshed_shard"),
    Refused("watch leaf|watch leaves", "install_leaf_hook"),
    Refused("move shard|move shards|cut shard",
            "redistribute_shard, slice_shard, exchange_shards"),
    Refused("empty block", "empty_cached"),
    Refused("add plain", "add_pointwise_names", ("rules/",)),
    Refused("plain draws|plain random", "UnshardedRandom"),
    Refused("take draw|drawn placements|luck", "RandomOffset, next_offset"),
    Refused("field reader|field writer", "Decoder, Encoder"),
    Refused("for each holder", "tensor_members", ("sharded_tensor/",)),
    Refused("library op", "BuiltinOp"),
    Refused("bury|say gone|are gone", "mark_dead"),
]


def parts_of(identifier):
    return [part.lower() for part in PART.findall(identifier)]


def contains(parts, words):
    """Tells whether the parts of an identifier contain a sequence of words."""
    return any(parts[i:i + len(words)] == words
               for i in range(len(parts) - len(words) + 1))


def lies_in(path, patterns):
    folders, name = path.split("/")[:-1], path.split("/")[-1]
    return any(p[:-1] in folders if p.endswith("/") else fnmatch.fnmatch(name, p)
               for p in patterns)


def reason_against(row, path, identifier, parts):
    """Returns the word of a row that an identifier at `path` contains, or ""."""
    if row.where and not lies_in(path, row.where):
        return ""
    if lies_in(path, row.not_in):
        return ""
    if any(identifier in names.split() for names, _ in row.allowed):
        return ""
    return next((word for word in row.words.split("|")
                 if contains(parts, word.split())), "")


def identifiers_of(text):
    """Yields identifiers with their lines, each once."""
    seen = set()
    for match in TOKEN.finditer(text):
        word = match["word"]
        if word and word not in seen:
            seen.add(word)
            yield text.count("\n", 0, match.start()) + 1, word


def check_text(path, text):
    for line, identifier in identifiers_of(text):
        parts = parts_of(identifier)
        for row in REFUSED:
            word = reason_against(row, path, identifier, parts)
            if word:
                yield (f"{path}:{line}: {identifier}: \"{word}\" is refused; the "
                       f"field says {row.instead}")


def check_tree(root):
    files = sorted(p for p in (root / "src").rglob("*") if p.suffix in SUFFIXES)
    problems = []
    for file in files:
        path = file.relative_to(root).as_posix()
        problems += check_text(path, file.read_text())
    return len(files), problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=here)
    count, problems = check_tree(parser.parse_args().root)
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"check_words: {count} files, {len(problems)} problems")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())
