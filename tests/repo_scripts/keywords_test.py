"""Tests the reader of headers and the choice of sections."""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import cpp_names  # noqa: E402
import keywords  # noqa: E402


def names(text):
    return ["::".join(n.path) for n in cpp_names.read_names(text)]


class ReadNamesTest(unittest.TestCase):
    def test_functions_types_constants_aliases_and_macros(self):
        self.assertEqual(names("""
            #pragma once
            #define TESSERA_API __attribute__((x))
            namespace tessera {
            using Runs = std::vector<Run>;
            inline constexpr int64_t kMost = 3;
            template <class T, int N = 3> T first(const std::vector<T>& all);
            [[nodiscard]] std::pair<int, std::function<void(int)>> pair_of(
                int a = f(2), Options options = {});
            const char* to_string(Op op); const std::vector<int>& all();
            }  // namespace tessera"""),
            ["TESSERA_API", "Runs", "kMost", "first", "pair_of", "to_string",
             "all"])

    def test_overrides_are_their_bases(self):
        self.assertEqual(names("""
            namespace tessera {
            struct Rows : Spec {
              int64_t dim() const { return 0; }
              Metadata build() const override;
              std::string name() const override { return "Rows"; }
            };
            }  // namespace tessera"""),
            ["Rows", "Rows::dim"])

    def test_export_marks_are_no_names(self):
        self.assertEqual(names("""
            namespace tessera {
            class TESSERA_API Work;
            class [[nodiscard]] TESSERA_API Box final : public Base {
             public:
              TESSERA_API Box();
              int size() const;
              friend TESSERA_API bool operator==(const Box&, const Box&);
            };
            TESSERA_API std::string to_string(const Box& box);
            }  // namespace tessera
            template <> struct TESSERA_API std::hash<tessera::Box> {
              int operator()(int) const; };"""),
            ["Box", "Box::size", "to_string"])

    def test_members_count_while_they_are_public(self):
        self.assertEqual(names("""
            namespace tessera {
            class [[nodiscard]] Box final : public Base<int> {
              int hidden() const;
             public:
              Box() = default;
              explicit Box(int a) : a_{a}, b_(a) { start(); }
              ~Box();
              Box& operator=(const Box&) = delete;
              int size() const { return a_ < b_ ? f(a_) : 0; }
              static Box from(std::vector<int> sizes);
              bool operator<(const Box&) const;
              friend bool operator==(const Box&, const Box&) = default;
              friend Box merge(Box a);
              enum class Kind : uint8_t { kOne = 1, kTwo = kOne << 2, };
              struct Part { int begin, end = 3; std::vector<int> all{1, 2}; };
             private:
              struct Secret { int x; };
              int a_, b_;
            };
            struct Forward;
            }"""),
            ["Box", "Box::size", "Box::from", "Box::Kind", "Box::Kind::kOne",
             "Box::Kind::kTwo", "Box::Part", "Box::Part::begin",
             "Box::Part::end", "Box::Part::all"])

    def test_detail_std_and_comments_are_left_out(self):
        self.assertEqual(names("""
            // int commented();  /* int also(); */
            namespace tessera::detail { int inner(); }
            namespace tessera { namespace detail { int deep(); }
            const char* text = "int quoted(); // no"; }
            template <> struct std::hash<tessera::Box> { int operator()(int); };
            namespace std { void swap(); }"""), ["text"])

    def test_inner_namespaces_are_part_of_the_name(self):
        self.assertEqual(
            names("namespace tessera::checkpoint { void save(); }"),
            ["checkpoint::save"])

    def test_operators_are_left_out(self):
        self.assertEqual(names("""namespace tessera {
            std::ostream& operator<<(std::ostream& out, const Box& box);
            Mesh operator[](int i); bool operator()(int i); int after(); }"""),
            ["after"])


class SectionTest(unittest.TestCase):
    def section_of(self, path, text, kind="function"):
        sections = keywords.read_sections("docs/01.md", text)
        name = cpp_names.Name(kind, tuple(path.split("::")))
        section = keywords.best_section(name, sections)
        return section and section.anchor

    def test_a_name_in_backticks_is_covered(self):
        for code in ("`whole`", "`whole(shape)`", "`tessera::whole(x)`",
                     "`Box whole(shape)`", "`find, whole`"):
            self.assertEqual(self.section_of("whole", f"# A\n## B b\n{code}"),
                             "b-b", code)

    def test_plain_words_and_other_uses_are_not_covered(self):
        for text in ("whole", "`tessera whole -n 4`", "`mesh.whole()`",
                     "`Mesh::whole`", "```sh\nwhole(1)\n```",
                     "```cpp\n// whole(1)\n```", "`the_whole(1)`"):
            self.assertIsNone(self.section_of("whole", f"# A\n{text}"), text)

    def test_a_command_does_not_cover_a_type(self):
        text = "# A\n`box_test --gtest_filter='Box*'`"
        self.assertIsNone(self.section_of("Box", text, "type"))

    def test_a_cpp_block_covers(self):
        text = "# A\n```cpp\nauto b = tessera::whole({2});\n```"
        self.assertEqual(self.section_of("whole", text), "a")

    def test_a_member_needs_its_type_in_the_section_or_above(self):
        self.assertIsNone(self.section_of("Box::numel", "# A\n`.numel()`"))
        self.assertEqual(
            self.section_of("Box::numel", "# A\n`Box` `.numel()`"), "a")
        self.assertEqual(self.section_of(
            "Box::numel", "# A\n## The `Box`\n### Size\n`numel`"), "size")
        self.assertEqual(
            self.section_of("Box::numel", "# A\n`tessera::Box::numel`"), "a")
        self.assertIsNone(
            self.section_of("Box::numel", "# Box\n`Mesh::numel()`"))

    def test_the_section_about_the_type_is_preferred(self):
        text = "# A\n## First\n`Box` `.numel()`\n## Boxes: `Box`\n`.numel()`"
        self.assertEqual(self.section_of("Box::numel", text), "boxes-box")

    def test_equal_headings_get_different_addresses(self):
        text = "# A\n## See\n## See\n`whole`"
        self.assertEqual(self.section_of("whole", text), "see-1")


class CheckTest(unittest.TestCase):
    def run_main(self, root, *arguments):
        out = io.StringIO()
        command = ["keywords.py", "--root", str(root), *arguments]
        with mock.patch.object(sys, "argv", command), \
                contextlib.redirect_stdout(out):
            return keywords.main(), out.getvalue()

    def test_uncovered_names_and_a_stale_page_are_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            header = root / "include/tessera/layout/box.h"
            header.parent.mkdir(parents=True)
            header.write_text("namespace tessera { int whole(); int half(); }")
            (root / "docs").mkdir()
            (root / "docs/01_layout.md").write_text("# Layout\n`whole`\n")
            self.assertEqual(self.run_main(root)[0], 0)
            code, text = self.run_main(root, "--check")
            self.assertEqual(code, 1)
            self.assertIn("of layout/box.h: half\n", text)
            self.assertNotIn("stale", text)
            (root / "docs/01_layout.md").write_text("# Layout\n`whole` `half`\n")
            code, text = self.run_main(root, "--check")
            self.assertEqual(code, 1)
            self.assertIn("stale", text)
            self.run_main(root)
            self.assertEqual(self.run_main(root, "--check")[0], 0)

    def test_the_header_of_the_export_mark_has_no_names_for_users(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            header = root / "include/tessera/export.h"
            header.parent.mkdir(parents=True)
            header.write_text("#define TESSERA_API __attribute__((x))\n")
            (root / "docs").mkdir()
            self.assertEqual(self.run_main(root), (
                0, "keywords: 0 names, 0 without a section\n"))


if __name__ == "__main__":
    unittest.main()
