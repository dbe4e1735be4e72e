"""scripts/check_links.py finds what pages name and is not there."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import check_links  # noqa: E402


class CheckLinksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.write("docs/01_a.md", "# A page\n## `Two`: words\n")
        self.write("src/a/b.cpp", "// Note [One of ours]\n// docs/01_a.md\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def problems(self, text, page="README.md"):
        self.write(page, text)
        return [*check_links.problems_of(self.root)]

    def test_what_is_there_passes(self):
        self.assertEqual(self.problems(
            "[a](docs/01_a.md#two-words) [b](src/a) [c](https://x.org/docs/9.md)\n"
            "`src/a/b.cpp` `src/a/` `src/a/*.cpp` `src/{a}/b.cpp` `src/a/NAME.cpp` `other/x`\n"
            "Note [One of ours]\n```sh\n[x](nothing.md) `src/c`\n```\n"), [])

    def test_a_link_that_leads_nowhere_is_found(self):
        self.assertEqual(self.problems("\n[a](docs/02.md)\n"),
                         ["README.md:2: no file docs/02.md", "README.md: no docs/02.md"])
        self.assertEqual(self.problems("[a](docs/01_a.md#three)\n"),
                         ["README.md:1: no heading #three in docs/01_a.md"])

    def test_links_are_relative_to_their_page(self):
        self.assertEqual(
            self.problems("# B\n[a](../01_a.md#a-page) [b](#b)\n", "docs/in/b.md"), [])
        self.assertEqual(
            self.problems("# B\n[a](01_a.md) [b](#c)\n", "docs/in/b.md"),
            ["docs/in/b.md:2: no file 01_a.md",
             "docs/in/b.md:2: no heading #c in docs/in/b.md"])

    def test_a_path_that_is_not_there_is_found(self):
        self.assertEqual(self.problems("`src/a/c.cpp` `src/a/{b,d}.cpp` `src/x*`\n"),
                         ["README.md:1: no src/a/c.cpp", "README.md:1: no src/a/d.cpp",
                          "README.md:1: no src/x*"])

    def test_a_page_named_by_a_source_must_exist(self):
        self.write("src/a/c.h", "// See docs/02_b.md.\n")
        self.assertEqual(self.problems(""), ["src/a/c.h: no docs/02_b.md"])

    def test_a_note_must_stand_in_a_source(self):
        self.assertEqual(self.problems("Notes [One of ours] and [Not ours]\n"),
                         ["README.md:1: no Note [Not ours]"])

    def test_the_changelog_may_name_paths_of_the_past(self):
        self.assertEqual(self.problems("`src/gone.cpp`\n", "CHANGELOG.md"), [])


if __name__ == "__main__":
    unittest.main()
