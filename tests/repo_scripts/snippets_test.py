"""Tests what counts as a program and as an excerpt in the docs."""
import pathlib
import stat
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import snippets  # noqa: E402

EXAMPLE = "#include <a>\n\nint main() {\n  one();\n  two();\n  three();\n}\n"


class SnippetsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "examples").mkdir()
        (self.root / "examples/a.cpp").write_text(EXAMPLE)

    def collect(self, text, page="README.md"):
        (self.root / page).parent.mkdir(exist_ok=True)
        (self.root / page).write_text(text)
        return snippets.collect(self.root)

    def test_no_pages_and_no_blocks_are_fine(self):
        self.assertEqual(snippets.collect(self.root), ({}, []))
        self.assertEqual(self.collect("# A\n```sh\nmake\n```\n"), ({}, []))

    def test_programs_are_taken_with_their_output(self):
        files, problems = self.collect(
            "# A\n```cpp\nint main() {}\n```\nIt prints\n\n"
            "<!-- output -->\n```text\n4\n```\n", "docs/02_plan.md")
        self.assertEqual(problems, [])
        self.assertEqual(files, {"02_plan_3.cpp": "int main() {}\n",
                                 "02_plan_3.txt": "4\n"})

    def test_programs_in_python_import_tessera(self):
        files, problems = self.collect(
            "# A\n```python\nimport tessera\n```\n<!-- output -->\n```text\n1\n```\n"
            "```python\nimport ctypes\n```\n")
        self.assertEqual(problems, [])
        self.assertEqual(files, {"readme_3.py": "import tessera\n",
                                 "readme_3.txt": "1\n"})

    def test_a_program_may_print_what_another_one_prints(self):
        files, problems = self.collect(
            "```cpp\nint main() {}\n```\n<!-- output -->\n```text\n7\n```\n"
            "<!-- output: above -->\n```python\nimport tessera\n```\n")
        self.assertEqual(problems, [])
        self.assertEqual(files["readme_10.txt"], "7\n")
        self.assertIn("no output block", self.collect(
            "<!-- output: above -->\n```python\nimport tessera\n```\n")[1][0])

    def test_programs_of_dtensor_have_ranks_and_the_next_output(self):
        files, problems = self.collect(
            "<!-- dtensor: 4 ranks -->\n```python\nprint(7)\n```\n"
            "```cpp\nint main() {}\n```\n<!-- output -->\n```text\n7\n```\n")
        self.assertEqual(problems, [])
        self.assertEqual(files, {
            "readme_3.dtensor.py": "# ranks: 4\nprint(7)\n", "readme_3.txt": "7\n",
            "readme_6.cpp": "int main() {}\n", "readme_6.txt": "7\n"})

    def test_programs_in_python_are_run_and_compared(self):
        program, output = self.root / "a.py", self.root / "a.txt"
        program.write_text("print(6 * 7)\n")
        output.write_text("42\n")
        self.assertEqual(snippets.run_program(program, output), 0)
        output.write_text("43\n")
        self.assertEqual(snippets.run_program(program, output), 1)
        program.write_text("raise SystemExit(3)\n")
        self.assertEqual(snippets.run_program(program, None), 1)

    def excerpt(self, code, name="examples/a.cpp"):
        mark = f"<!-- excerpt: {name} -->\n" if name else ""
        return self.collect(f"{mark}```cpp\n{code}\n```\n")[1]

    def test_excerpts_are_found_at_any_indentation(self):
        self.assertEqual(self.excerpt("one();\ntwo();"), [])
        self.assertEqual(self.excerpt("  two();\n  three();\n}"), [])

    def test_left_out_lines_are_allowed_where_marked(self):
        self.assertEqual(self.excerpt("one();\n// ...\nthree();"), [])
        self.assertIn("from: one();", self.excerpt("one();\nthree();")[0])
        self.assertIn("from: one();",
                      self.excerpt("three();\n// ...\none();")[0])

    def test_a_block_that_differs_is_reported_with_its_place(self):
        problem, = self.excerpt("four();")
        self.assertIn("README.md:3: not an excerpt of examples/a.cpp", problem)

    def test_a_missing_file_and_a_missing_mark_are_reported(self):
        self.assertIn("not there", self.excerpt("one();", "examples/b.cpp")[0])
        self.assertIn("neither a program", self.excerpt("one();", "")[0])

    def test_programs_that_are_gone_are_removed(self):
        folder = self.root / "out"
        for text, expected in (("```cpp\nint main() {}\n```\n", 1), ("", 0)):
            (self.root / "README.md").write_text(text)
            self.assertEqual(snippets.write_programs(self.root, folder), 0)
            self.assertEqual(len([*folder.iterdir()]), expected)

    def test_a_program_must_succeed_and_print_what_the_page_says(self):
        program, page = self.root / "program", self.root / "page.txt"
        page.write_text("4\n")
        for script, expected in (("echo 4", 0), ("echo 5", 1), ("exit 3", 1)):
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            self.assertEqual(snippets.run_program(program, page), expected)


if __name__ == "__main__":
    unittest.main()
