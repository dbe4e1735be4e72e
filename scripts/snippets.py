#!/usr/bin/env python3
"""Takes the programs out of README.md and docs/*.md, so that tests run them.

A cpp block that contains `int main` is a whole program: it is written to FOLDER as
PAGE_LINE.cpp; a python block that imports tessera as PAGE_LINE.py. A text block
directly after it that is marked <!-- output --> is what the program must print;
a program marked <!-- output: above --> must print what the last such block says.
A python block marked <!-- dtensor: 2 ranks --> is a program of PyTorch's DTensor, which
must print the next output block: PAGE_LINE.dtensor.py, run by
tests/docs/dtensor_programs.py.
Any other cpp block must be marked with the file that it quotes, in the line before:
<!-- excerpt: examples/01_layouts.cpp -->. Its lines must follow each other in that
file, at any indentation; a line `// ...` stands for left out ones.

  scripts/snippets.py FOLDER     write the programs, list them on stdout
  scripts/snippets.py --run PROGRAM [OUTPUT-FILE]    run one, compare its output
"""
import argparse
import pathlib
import re
import subprocess
import sys
import textwrap
from typing import NamedTuple

TIME_LIMIT_SECONDS = 240


class Block(NamedTuple):
    page: str
    line: int  # of the first line of code
    language: str
    mark: str  # text of the HTML comment before it
    code: str


def read_blocks(page, text):
    """Yields the fenced blocks of a page."""
    mark, start = "", None
    for number, line in enumerate(text.split("\n"), 1):
        fence = re.match(r"\s*```\s*([\w+-]*)", line)
        if fence and start is None:
            start, language, lines = number + 1, fence[1], []
        elif fence:
            code = textwrap.dedent("\n".join(lines)) + "\n"
            yield Block(page, start, language, mark, code)
            mark, start = "", None
        elif start is not None:
            lines.append(line)
        elif line.strip():
            comment = re.fullmatch(r"\s*<!--\s*(.*?)\s*-->\s*", line)
            mark = comment[1] if comment else ""


def read_pages(root):
    pages = sorted((root / "docs").rglob("*.md")) + [root / "README.md"]
    for page in pages:
        if page.exists():
            yield [*read_blocks(page.relative_to(root).as_posix(),
                                page.read_text())]


def is_cpp(block):
    return block.language in ("cpp", "c++", "cxx")


def is_program(block):
    return is_cpp(block) and re.search(r"\bint main\b", block.code)


def is_python_program(block):
    return block.language == "python" and re.search(
        r"^(import|from) tessera\b", block.code, re.MULTILINE)


def dtensor_ranks(block):
    """Returns on how many ranks a program of PyTorch's DTensor runs; 0 for others."""
    match = re.fullmatch(r"dtensor: (\d+) ranks", block.mark)
    return int(match[1]) if match and block.language == "python" else 0


def file_name(block):
    page = re.sub(r"\W+", "_", block.page.removesuffix(".md").lower())
    return f"{page.removeprefix('docs_')}_{block.line}"


def contains(whole, part):
    """Tells whether the lines of `part` follow each other in `whole`."""
    whole = whole.split("\n")
    width = len(part)
    for start in range(len(whole) - width + 1):
        window = textwrap.dedent("\n".join(whole[start:start + width]))
        if window.rstrip() == "\n".join(part).rstrip():
            return "\n".join(whole[start + width:])
    return None


def excerpt_problem(root, block):
    """Says why a block is no excerpt of the file it names; "" when it is."""
    match = re.fullmatch(r"excerpt:\s*(\S+)", block.mark)
    if not match:
        return ("neither a program with int main nor marked as "
                "<!-- excerpt: FILE -->")
    path = root / match[1]
    if not path.is_file():
        return f"excerpt of {match[1]}, which is not there"
    rest = path.read_text()
    for part in re.split(r"^\s*// \.\.\.$", block.code, flags=re.MULTILINE):
        part = textwrap.dedent(part).strip("\n").split("\n")
        if part == [""]:
            continue
        rest = contains(rest, part)
        if rest is None:
            return f"not an excerpt of {match[1]}, from: {part[0]}"
    return ""


def output_of(blocks, index):
    """Returns what the program that is blocks[index] must print, or nothing."""
    if blocks[index].mark == "output: above":
        candidates = reversed(blocks[:index])
    elif dtensor_ranks(blocks[index]):
        candidates = blocks[index + 1:]
    else:
        candidates = blocks[index + 1:index + 2]
    return next((b.code for b in candidates if b.mark == "output"), None)


def collect(root):
    """Returns {file name: text} of the programs and their outputs; problems."""
    files, problems = {}, []
    for blocks in read_pages(root):
        for index, block in enumerate(blocks):
            ranks = dtensor_ranks(block)
            if ranks or is_program(block) or is_python_program(block):
                name = file_name(block)
                suffix = "cpp" if is_cpp(block) else "dtensor.py" if ranks else "py"
                head = f"# ranks: {ranks}\n" if ranks else ""
                files[f"{name}.{suffix}"] = head + block.code
                output = output_of(blocks, index)
                if output is not None:
                    files[f"{name}.txt"] = output
                elif ranks or block.mark == "output: above":
                    problems.append(f"{block.page}:{block.line}: no output block")
            elif is_cpp(block):
                problem = excerpt_problem(root, block)
                if problem:
                    problems.append(f"{block.page}:{block.line}: {problem}")
    return files, problems


def write_programs(root, folder):
    files, problems = collect(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if old.is_file() and old.name not in files:
            old.unlink()
    for name, text in files.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    print(*(n for n in files if n.endswith((".cpp", ".py"))
            and not n.endswith(".dtensor.py")), sep="\n")
    return 1 if problems else 0


def run_program(program, expected):
    command = [program]
    if program.suffix == ".py":
        command = [sys.executable, "-B", "-W", "ignore", program]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True,
                            timeout=TIME_LIMIT_SECONDS)
    print(result.stdout, end="")
    if result.returncode:
        print(f"snippets: {program} ended with {result.returncode}")
        return 1
    if expected and result.stdout.strip() != expected.read_text().strip():
        print(f"snippets: the page says\n{expected.read_text()}", end="")
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=here)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.run:
        return run_program(*(arguments.paths + [None])[:2])
    return write_programs(arguments.root, arguments.paths[0])


if __name__ == "__main__":
    sys.exit(main())
