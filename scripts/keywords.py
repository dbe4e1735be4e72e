#!/usr/bin/env python3
"""Writes docs/reference/keywords.md: each public name, its header, its section.

A name is covered where it stands in code (a `span` or a cpp block) under a
heading of a page of docs/ or of README.md: `local_shape`, `local_shape(...)`,
`Layout::runs`, `.runs(`. A member's section must also name its type, there or
in a heading above. Of several sections the one that is most about it counts.

  scripts/keywords.py           refresh the page; lists what no section covers
  scripts/keywords.py --check   exit 1 when it is stale or a name has no section
"""
import argparse
import os
import pathlib
import re
import sys

import cpp_names

INTRODUCTION = """# Keywords

Every public name, the header that declares it and the section that explains it.
Written by `make keywords`; do not edit.

| name | header | section |
| --- | --- | --- |
"""
# Declares what the library's own headers are marked with; users write none of it.
WITHOUT_NAMES = "export.h"
PAGE = pathlib.PurePosixPath("docs/reference/keywords.md")
MARKDOWN_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class Section:
    """What stands between one heading and the next."""

    def __init__(self, page, title, anchor, above):
        self.page, self.title, self.anchor = page, title, anchor
        self.headings = above + [title]
        self.spans, self.blocks = [], []

    def names(self, word):
        """Tells whether the section or a heading above it names a type."""
        found = re.compile(rf"\b{word}\b").search
        return any(found(text)
                   for text in self.headings + self.spans + self.blocks)

    def score(self, name):
        """Says how much the section is about a name; 0 when it is not."""
        *owners, word = name.path
        if owners and not self.names(owners[-1]):
            return 0
        pattern = usage(name)
        in_span = any(pattern.search(span) for span in self.spans)
        in_block = any(pattern.search(block) for block in self.blocks)
        if not (in_span or in_block):
            return 0
        subject = owners[-1] if owners else word
        qualified = re.compile(rf"\b{subject}::{word}\b")
        titles = [t for t in self.headings if re.search(rf"\b{subject}\b", t)]
        return (1 + in_span + 4 * bool(titles)
                + 2 * (bool(owners) and any(map(qualified.search, self.spans))))


def usage(name):
    """Returns the pattern of code that uses a name."""
    *owners, word = name.path
    if word[0].isupper() or re.match(r"k[A-Z]", word):  # types, enumerators
        return re.compile(rf"\b{word}\b")
    if owners:
        before = rf"(?<!::)(?<!\w)(?:{owners[-1]}::)?"
    else:
        before = r"(?<!\.)(?<!->)(?<!::)(?<!\w)(?:tessera::)?"
    calls = rf"{before}{word}\s*[(<]"
    members = rf"(?:\.|->|{owners[-1]}::){word}\b" if owners else r"(?!)"
    alone = rf"(?:^|,\s){before}{word}(?=$|,\s)"
    return re.compile(rf"{calls}|{members}|{alone}")


def anchor_of(title, taken):
    """Returns the address of a heading, as Markdown renderers make it."""
    text = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    count = taken.get(text, 0)
    taken[text] = count + 1
    return f"{text}-{count}" if count else text


def code_spans(line):
    """Returns the spans of a line that may be C++: no command with options."""
    return [span for span in re.findall(r"`([^`]+)`", line)
            if not re.search(r"(?:^|\s)--?\w", span)]


def read_sections(page, text):
    """Cuts a page into its sections."""
    sections, above, taken = [Section(page, page, "", [])], [], {}
    language, block = None, []
    for line in text.split("\n"):
        fence = re.match(r"\s*```\s*(\w*)", line)
        if fence and language is None:
            language, block = fence[1], []
        elif fence:
            if language in ("cpp", "c++"):
                sections[-1].blocks.append(
                    cpp_names.strip_comments("\n".join(block)))
            language = None
        elif language is not None:
            block.append(line)
        elif heading := re.match(r"(#+)\s+(.*?)\s*#*$", line):
            title = MARKDOWN_LINK.sub(r"\1", heading[2])
            above = above[:len(heading[1]) - 1]
            above += [""] * (len(heading[1]) - 1 - len(above))
            plain = title.replace("`", "")
            sections.append(
                Section(page, plain, anchor_of(plain, taken), above))
            above = above + [plain]
            sections[-1].spans += code_spans(title)
        else:
            sections[-1].spans += code_spans(line)
    return sections


def read_docs(root):
    """Reads the sections; pages that show many names at once come last."""
    first = root / "docs" / "00_start.md"
    pages = [page for page in sorted((root / "docs").rglob("*.md"))
             if page != first and page.parent != root / PAGE.parent]
    pages += [first, root / "README.md"]
    return [section for page in pages if page.exists()
            for section in read_sections(
                page.relative_to(root).as_posix(), page.read_text())]


def read_headers(root):
    """Returns {name: headers that declare it}, both as text below include/."""
    names = {}
    include = root / "include" / "tessera"
    for header in sorted(include.rglob("*.h")):
        if header == include / WITHOUT_NAMES:
            continue
        for name in cpp_names.read_names(header.read_text()):
            where = names.setdefault(name.path, (name, []))[1]
            where.append(header.relative_to(include).as_posix())
    return sorted(names.values(),
                  key=lambda entry: ("::".join(entry[0].path).lower(), entry))


def best_section(name, sections):
    scores = [(section.score(name), section) for section in sections]
    score, section = max(scores, key=lambda pair: pair[0], default=(0, None))
    return section if score else None


def row(name, headers, section):
    files = ", ".join(f"[{h}](../../include/tessera/{h})" for h in headers)
    link = "none"
    if section:
        page = os.path.relpath(section.page, PAGE.parent)
        address = f"{page}#{section.anchor}" if section.anchor else page
        link = f"[{section.title}]({address})"
    return f"| `{'::'.join(name.path)}` | {files} | {link} |\n"


def make_page(root):
    """Returns the page's text and the names without a section, by header."""
    sections = read_docs(root)
    text, uncovered = INTRODUCTION, {}
    for name, headers in read_headers(root):
        section = best_section(name, sections)
        text += row(name, headers, section)
        if not section:
            uncovered.setdefault(headers[0], []).append("::".join(name.path))
    return text, uncovered


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=here)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    page = arguments.root / PAGE
    text, uncovered = make_page(arguments.root)
    stale = not page.exists() or page.read_text() != text
    if not arguments.check:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
    for header, names in uncovered.items():
        print(f"no section of the docs covers, of {header}: {' '.join(names)}")
    if arguments.check and stale:
        print(f"{PAGE} is stale: run 'make keywords'")
    total = text.count("\n") - INTRODUCTION.count("\n")
    missing = sum(map(len, uncovered.values()))
    print(f"keywords: {total} names, {missing} without a section")
    return 1 if arguments.check and (stale or uncovered) else 0


if __name__ == "__main__":
    sys.exit(main())
