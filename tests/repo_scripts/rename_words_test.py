"""Renames small texts and sees what changed and what did not."""
import pathlib
import sys
import unittest

sys.path.insert(
    0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "house"))
import rename_words  # noqa: E402

ROWS = rename_words.parse_rows("""
Piece -> StridedCopy     | !cut.*
place -> group_rank      | engine/ comm_log.*
news() -> poll_events    | engine/
news -> event            | engine/
Transfer -> GlooTransfer | gloo.* unless GlooTransfer
Transit -> Transfer
to_addend -> to_partial
way -> strategy          | tests:decide.cpp
pulls -> reads           | pull.*
""")


class RenameWordsTest(unittest.TestCase):
    def renamed(self, text, path="src/comm/a.cpp"):
        result = rename_words.rename_file(ROWS, path, text)[0]
        again = rename_words.rename_file(ROWS, path, result)[0]
        self.assertEqual(result, again)
        return result

    def test_whole_identifiers_only(self):
        self.assertEqual(self.renamed("Piece a; Pieces b; MyPiece c;"),
                         "StridedCopy a; Pieces b; MyPiece c;")

    def test_texts_includes_and_cases_stay(self):
        text = ('#include <a/to_addend.h>\nauto a = "to_addend";\n'
                "TEST(Suite, to_addend) {}\nauto b = R\"(to_addend)\";\n")
        self.assertEqual(self.renamed(text), text)

    def test_comments_change_where_they_name_code(self):
        self.assertEqual(
            self.renamed("// to_addend() of a Piece, `Piece`, to_addend.cpp\n"),
            "// to_partial() of a Piece, `StridedCopy`, to_addend.cpp\n")

    def test_scope_by_folder_and_by_name(self):
        self.assertEqual(self.renamed("int place;"), "int place;")
        self.assertEqual(self.renamed("int place;", "src/comm/engine/mpi/m.cpp"),
                         "int group_rank;")
        self.assertEqual(self.renamed("int place;", "src/comm/log/comm_log.cpp"),
                         "int group_rank;")
        self.assertEqual(self.renamed("Piece p;", "src/layout/cut.h"), "Piece p;")

    def test_files_and_folders_that_were_split(self):
        for path in ("src/comm/call/call.h", "src/comm/process_ranks.cpp"):
            self.assertEqual(self.renamed("int place;", path), "int group_rank;")
        for path in ("src/comm/pull.h", "src/comm/direct.h"):
            self.assertEqual(self.renamed("int pulls;", path), "int reads;")

    def test_tests_only_where_a_row_names_them(self):
        self.assertEqual(self.renamed("int place;", "tests/engine/a.cpp"),
                         "int place;")
        self.assertEqual(self.renamed("d->way", "tests/tensor/decide.cpp"),
                         "d->strategy")

    def test_functions_and_variables_of_one_name(self):
        self.assertEqual(
            self.renamed("for (auto& news : net.news(0)) {}", "src/engine/a.cpp"),
            "for (auto& event : net.poll_events(0)) {}")

    def test_a_name_that_moves_up_for_another(self):
        self.assertEqual(
            self.renamed("Transit t; Transfer u;", "src/engine/gloo.h"),
            "Transfer t; GlooTransfer u;")

    def test_a_file_that_is_renamed_too(self):
        for name in ("pull.h", "direct.h"):
            self.assertEqual(self.renamed("auto pulls;", f"src/comm/{name}"),
                             "auto reads;")

    def test_numbers_with_marks_are_no_characters(self):
        self.assertEqual(self.renamed("f(1'000, to_addend, '\\'')"),
                         "f(1'000, to_partial, '\\'')")

    def test_titles_across_lines(self):
        self.assertEqual(self.renamed("// see Note [Spare\n// parts].\n"),
                         "// see Note [Object\n// pools].\n")

    def test_pages_change_where_they_name_code(self):
        self.assertEqual(
            self.renamed("`Piece` and a Piece, `to_addend()`", "docs/a.md"),
            "`StridedCopy` and a Piece, `to_partial()`")

    def test_the_table_names_each_identifier_once_per_scope(self):
        seen = set()
        for row in rename_words.parse_rows(rename_words.ROWS):
            self.assertNotEqual(row.old, row.new)
            key = (row.old, row.files, row.excluded)
            self.assertNotIn(key, seen)
            seen.add(key)


if __name__ == "__main__":
    unittest.main()
