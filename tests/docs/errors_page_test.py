"""docs/reference/errors.md quotes messages that the sources still have.

    python3 tests/docs/errors_page_test.py

The first column of its tables quotes fixed parts of messages, with `...` between two
parts. Each part must stand in the string literals of src/ or include/, where literals that
follow each other are one.
"""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/errors.md"
FEWEST = 30
LITERAL = r'"(?:[^"\\\n]|\\.)*"'


def literals(text):
    """Returns the string literals of a source, neighbours joined, one per line."""
    text = re.sub(r"^\s*(//|#).*$", "", text, flags=re.MULTILINE)
    joined = re.findall(rf"{LITERAL}(?:\s*{LITERAL})*", text)
    parts = ["".join(p[1:-1] for p in re.findall(LITERAL, one)) for one in joined]
    return "\n".join(parts).replace('\\"', '"')


def quoted(page):
    """Yields the parts of messages that the page quotes, per row."""
    for line in page.split("\n"):
        if match := re.match(r"\| `([^`]+)` \|.*\|.*\|$", line):
            if not match[1].startswith("c10::"):  # the table of exceptions
                yield [part.strip() for part in match[1].split("...") if part.strip()]


def missing(page, sources):
    return [part for parts in quoted(page) for part in parts if part not in sources]


class ErrorsPageTest(unittest.TestCase):
    def test_every_quoted_part_is_in_the_sources(self):
        files = [p for folder in ("src", "include", "python/tessera")
                 for p in sorted((ROOT / folder).rglob("*"))
                 if p.suffix in (".h", ".cpp", ".py")]
        sources = "\n".join(literals(p.read_text()) for p in files)
        self.assertEqual(missing(PAGE.read_text(), sources), [])

    def test_the_page_has_the_likely_ones(self):
        self.assertGreaterEqual(len([*quoted(PAGE.read_text())]), FEWEST)

    def test_a_text_that_nobody_says_is_found(self):
        page = "| `a mesh ... has` | why | do |\n| `not said` | why | do |\n"
        self.assertEqual(
            missing(page, literals('f("a mesh ", x,\n  // "not said"\n  " has");')),
            ["not said"])


if __name__ == "__main__":
    unittest.main()
