"""Plants each kind of refused identifier and sees it reported."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_words  # noqa: E402


class CheckWordsTest(unittest.TestCase):
    def problems(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check_words.check_tree(root)[1]

    def test_an_old_word_in_a_type(self):
        problems = self.problems(
            {"src/tensor/pool.h": "\nclass SpareParts {};\n"})
        self.assertEqual(len(problems), 1, problems)
        self.assertIn("src/tensor/pool.h:2: SpareParts", problems[0])
        self.assertIn("ObjectPool", problems[0])

    def test_every_spelling_of_a_word(self):
        for name in ("cut_shard", "CutCall", "is_cut", "cut_", "kCut", "DimCut2"):
            self.assertEqual(
                len(self.problems({"src/tensor/a.cpp": f"int {name};\n"})) > 0,
                True, name)

    def test_every_row_refuses_its_words(self):
        for row in check_words.REFUSED:
            where = [w if w.endswith("/") else w.replace("*", "h")
                     for w in row.where] or ["tensor/"]
            folder = where[0] if where[0].endswith("/") else "tensor/"
            file = "a.cpp" if where[0].endswith("/") else where[0]
            for word in row.words.split("|"):
                name = "_".join(word.split()) + "_planted"
                text = f"int {name};\n"
                path = f"src/{folder}{file}"
                self.assertTrue(
                    any(name in p for p in self.problems({path: text})),
                    f"{name} in {path}")

    def test_prose_texts_and_includes_are_free(self):
        self.assertEqual(self.problems({"src/tensor/a.cpp": """
#include <tensor/spare_parts.h>
// A spare part, cut whole: SpareParts.
/* addends of a wire */
const char* kText = "the wire was cut";
const char* kRaw = R"(whole addends)";
int executed = 1'000'000;
"""}), [])

    def test_a_word_that_is_refused_in_a_folder_only(self):
        text = "int place = 0;\n"
        self.assertEqual(self.problems({"src/sharded_tensor/a.cpp": text}), [])
        self.assertEqual(len(self.problems({"src/comm/engine/a.cpp": text})), 1)
        self.assertEqual(len(self.problems({"src/tensor/random/a.h": text})), 1)

    def test_allowed_identifiers(self):
        self.assertEqual(self.problems({
            "src/tensor/a.cpp": "auto c = layout.cuts(0); auto w = whole(shape);\n",
            "src/layout/cut.h": "class Cut {};\n",
        }), [])

    def test_other_words_that_contain_one(self):
        self.assertEqual(self.problems({
            "src/tensor/a.cpp":
                "int executed, always, partially, displaced, wired_up;\n"}), [])

    def test_each_exception_has_a_reason(self):
        for row in check_words.REFUSED:
            for names, reason in row.allowed:
                self.assertTrue(names and reason, row)


if __name__ == "__main__":
    unittest.main()
