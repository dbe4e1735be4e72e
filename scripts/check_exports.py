#!/usr/bin/env python3
"""Checks that TESSERA_API marks what the library must show, and nothing else.

Reads the public headers: a function that a source defines, a class with such
members, with virtual functions or that is thrown, and an extern variable need
the mark; in a namespace `detail` only what code of public headers uses. The
linker cannot find a missing one in a development build, whose libraries hide
nothing. Prints one line per problem and exits 1 when there is one.

  scripts/check_exports.py [--root FOLDER]
  scripts/check_exports.py --library build/lib/libtessera.so
                           also compares the marks with what a library shows
"""
import argparse
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

import cpp_exports
from cpp_exports import MARK

# Symbols without a C++ name that the library shows, with who looks them up.
# Plugins have theirs (tessera_mpi_transport); the library needs none so far.
C_SYMBOLS = {}

# What a compiler makes for a class, as nm -C names it.
OF_CLASS = ("vtable for ", "typeinfo for ", "typeinfo name for ", "VTT for ")
THUNKS = ("non-virtual thunk to ", "virtual thunk to ",
          "covariant return thunk to ")


class Found(NamedTuple):
    file: str
    declaration: cpp_exports.Declaration
    marked: bool

    def problem(self, text):
        d = self.declaration
        return f"{self.file}:{d.line}: {d.name}: {text}"


class Symbol(NamedTuple):
    mangled: str
    text: str  # demangled


def read_tree(root):
    """Returns what the public headers declare, and what their code uses."""
    declared, uses = [], set()
    for path in sorted((root / "include" / "tessera").rglob("*.h")):
        header = cpp_exports.read_header(path.read_text())
        uses |= header.uses
        # The mark of one declaration holds for the others of the header.
        shown = {(d.kind.replace("forward", "class"), d.path, d.signature)
                 for d in header.declarations if d.marked}
        declared += [
            Found(path.relative_to(root).as_posix(), d,
                  (d.kind, d.path, d.signature) in shown)
            for d in header.declarations if d.kind != "forward"]
    return declared, uses


def is_used(declaration, uses):
    """Tells whether code of public headers uses a name of namespace detail."""
    return any(use.word == declaration.path[-1] and
               use.inside != declaration.path for use in uses)


def check_member(found, classes):
    """Rules for a member of a class, and for a class in another."""
    d = found.declaration
    if not d.marked:
        return ""
    if classes.get(d.scope):
        return f"its class is marked; remove {MARK}"
    return f"classes are marked as a whole; move {MARK} to {d.scope}"


def check_headers(declared, uses):
    """Yields the marks that are missing and those that are too much."""
    classes = {f.declaration.name: f.marked for f in declared
               if f.declaration.kind == "class"}
    for found in declared:
        d = found.declaration
        if d.scope in classes:
            problem = check_member(found, classes)
            if problem:
                yield found.problem(problem)
            continue
        hidden = d.in_detail and not is_used(d, uses)
        if d.why and not hidden and not found.marked:
            place = "before its name" if d.kind == "class" \
                else "before its type"
            yield found.problem(f"{d.why}, so users' programs need the symbol; "
                                f"write {MARK} {place}")
        elif d.marked and not d.why:
            yield found.problem("every file that includes it compiles it by "
                                f"itself; remove {MARK}")
        elif d.marked and hidden:
            yield found.problem("no code of a public header uses it; "
                                f"remove {MARK}")


def read_symbols(library):
    """Returns the symbols that a shared library defines and shows."""
    def names(*options):
        out = subprocess.run(
            ["nm", "-D", "-p", "--defined-only", *options, str(library)],
            capture_output=True, text=True, check=True).stdout
        lines = [re.match(r"[0-9a-f]* *[A-Za-z] (.*)", line)
                 for line in out.splitlines()]
        return [re.sub(r"@@?[\w.]+$", "", m[1]) for m in lines if m]
    return [Symbol(*pair) for pair in zip(names(), names("-C"))]


def without_tags(text):
    return re.sub(r"\[abi:\w+\]", "", text)


def without_arguments(text):
    """Removes template arguments: "a<b<c> >::d" -> "a::d"."""
    result, depth = "", 0
    for c in text:
        depth += (c == "<") - (c == ">")
        if depth == 0 and c != ">":
            result += c
    return result


def qualified_name(text):
    """Returns the name of a demangled function: no types, no arguments."""
    text = without_tags(text)
    marks = re.search(r"\boperator *(\(\)|\[\]|[^\w\s(\"]+)", text)
    word = ""
    if marks:
        word = "operator" + marks[1]
        text = text[:marks.start()] + "operator(" + text[marks.end():]
    text = without_arguments(text.replace("(anonymous namespace)", "{}"))
    text = text.split("(")[0]
    if not word and (cast := re.search(r"\S*\boperator .*", text)):
        return cast[0]
    text = text.split(" ")[-1]
    return text[:-len("operator")] + word if word else text


class Shown:
    """What the marks allow a library to show."""

    def __init__(self, declared):
        marked = [f for f in declared if f.marked]
        self.functions = {f.declaration.name for f in marked
                          if f.declaration.kind != "class"}
        self.classes = {f.declaration.name for f in marked
                        if f.declaration.kind == "class"}

    def is_member(self, text):
        """Tells whether a name is that of a marked class or lies inside it."""
        return any(text == c or text.startswith(c + "::")
                   for c in self.classes)

    def allows(self, symbol):
        if symbol.text == symbol.mangled:
            return symbol.mangled in C_SYMBOLS
        if re.match(r"_ZZ|_ZGV", symbol.mangled):  # inside a function
            return False
        text = without_tags(symbol.text)
        for prefix in OF_CLASS:
            if text.startswith(prefix):
                return self.is_member(text.removeprefix(prefix))
        if construction := re.match(r"construction vtable for (.*)-in-(.*)",
                                    text):
            return self.is_member(construction[2])
        for prefix in THUNKS:
            text = text.removeprefix(prefix)
        name = qualified_name(text)
        return name in self.functions or self.is_member(name) or \
            any("<" in c and text.startswith(c + "::") for c in self.classes)


def check_library(declared, symbols, library):
    """Yields what a library shows unmarked, and what it does not show."""
    shown = Shown(declared)
    for symbol in symbols:
        if not shown.allows(symbol):
            yield (f"{library}:0: {symbol.text}: no public header marks it with "
                   f"{MARK}; hide it (-fvisibility=hidden, src/exports.map), or "
                   "declare and mark it")
    there = {}
    for text in {without_tags(s.text) for s in symbols}:
        there.setdefault(qualified_name(text), set()).add(text)
    for name, overloads in wanted(declared, shown).items():
        count = len(there.get(name, ()))
        if count < len(overloads):
            yield next(iter(overloads.values())).problem(
                f"of {len(overloads)} functions {library} shows {count}; define "
                "it, or let src/exports.map name it")


def wanted(declared, shown):
    """Returns the functions that are marked, by name and signature."""
    functions = {}
    for found in declared:
        d = found.declaration
        if d.why and d.kind != "class" and \
                (found.marked or shown.is_member(d.scope)):
            name = "::".join([without_arguments(p) for p in d.path[:-1]]
                             + [d.path[-1]])
            functions.setdefault(name, {}).setdefault(d.signature, found)
    return functions


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=here)
    parser.add_argument("--library", type=pathlib.Path)
    arguments = parser.parse_args()
    declared, uses = read_tree(arguments.root)
    problems = list(check_headers(declared, uses))
    if arguments.library:
        symbols = read_symbols(arguments.library)
        problems += check_library(declared, symbols, arguments.library.name)
    print(*problems, sep="\n", end="\n" if problems else "")
    marks = sum(f.declaration.marked for f in declared)
    print(f"check_exports: {marks} marks, {len(problems)} problems")
    return 1 if problems or not marks else 0


if __name__ == "__main__":
    sys.exit(main())
