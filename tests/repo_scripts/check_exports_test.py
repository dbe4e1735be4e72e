"""Plants missing and superfluous TESSERA_API, and libraries that show too much."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_exports  # noqa: E402

COMPILER = shutil.which(os.environ.get("CXX", "c++"))
HIDDEN = ["-fvisibility=hidden", "-fvisibility-inlines-hidden"]
SCRIPT = [f"-Wl,--version-script={ROOT / 'src/exports.map'}"]


def write(root, files):
    for name, text in files.items():
        path = root / "include/tessera" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class HeadersTest(unittest.TestCase):
    def problems(self, *texts):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write(root, {f"layout/{i}.h": f"namespace tessera {{\n{text}\n}}\n"
                         for i, text in enumerate(texts)})
            return list(check_exports.check_headers(
                *check_exports.read_tree(root)))

    def assert_reported(self, text, *words):
        problems = self.problems(text)
        self.assertEqual(len(problems), 1, problems)
        for word in words:
            self.assertIn(word, problems[0])

    def test_marked_declarations_are_not_reported(self):
        self.assertEqual(self.problems("""
            class Later;
            class TESSERA_API Work;
            class [[nodiscard]] Work { public: ~Work(); };
            struct TESSERA_API Box {
              int size() const;
              struct Part { int end() const; };
              friend bool operator==(const Box&, const Box&) = default;
              friend TESSERA_API bool operator<(const Box& a, const Box& b);
              friend Box whole(int n);
              static constexpr int kMost = 3;
            };
            TESSERA_API Box whole(int n = 3);
            TESSERA_API std::ostream& operator<<(std::ostream&, const Box&);
            class TESSERA_API Error : public c10::Error { using Error::Error; };
            class TESSERA_API Spec { virtual ~Spec() = default; };
            class TESSERA_API Rows final : public Spec { int a = 0; };
            extern TESSERA_API const int kLeast;
            template <class T> T read(int text);
            template <> TESSERA_API Box read(int text);
            }
            template <> struct TESSERA_API std::hash<tessera::Box> {
              size_t operator()(const tessera::Box&) const;
            };
            namespace tessera {"""), [])

    def test_definitions_need_no_mark(self):
        self.assertEqual(self.problems("""
            enum class Kind : int { kOne };
            using Fn = std::function<void(int)>;
            struct Plain { int a = 0; int b() const { return a; } };
            inline int half(int n) { return n / 2; }
            constexpr int twice(int n) { return 2 * n; }
            template <class T> T most(T a, T b);
            template <class T> struct Holder { T get() const; };
            template <class T> requires std::derived_from<T, Plain>
            int count(const T& value) { return value.a; }
            inline constexpr int kMost = 3;
            struct Kept { Kept(const Kept&) = delete; Kept() : n{f(1)} {} int n; };
            """), [])

    def test_functions_that_a_source_defines(self):
        for text, name in (
                ("int half(int n);", "tessera::half"),
                ("std::vector<int> all(const std::vector<int>& a = {});",
                 "tessera::all"),
                ("namespace inner { [[nodiscard]] int half(int n); }",
                 "tessera::inner::half"),
                ("std::ostream& operator<<(std::ostream& out, int box);",
                 "tessera::operator<<"),
                ("template <> int read<int>(int text);", "tessera::read"),
                ("extern const int kMost;", "tessera::kMost"),
                ("class A { friend bool operator==(const A&, const A&); };",
                 "tessera::operator==")):
            self.assert_reported(text, f"0.h:2: {name}:",
                                 "write TESSERA_API before its type")

    def test_classes_of_which_a_source_defines_a_part(self):
        for text, why in (
                ("struct Box { int size() const; };", "size is defined"),
                ("class Box { Box(); };", "Box is defined"),
                ("class Box { static int count; };", "count is defined"),
                ("class Box { virtual ~Box() = default; };", "virtual"),
                ("class Box : public c10::Error {};", "thrown")):
            self.assert_reported(text, "0.h:2: tessera::Box:", why,
                                 "write TESSERA_API before its name")
        self.assert_reported(
            "} template <> struct std::hash<tessera::Box> {"
            " size_t operator()(const tessera::Box&) const; }; namespace a {",
            "std::hash<tessera::Box>:", "operator() is defined")

    def test_a_class_derived_from_one_with_virtual_functions(self):
        self.assert_reported(
            "class TESSERA_API Base { virtual ~Base() = default; };\n"
            "class Rows : public Base { int n = 0; };",
            "0.h:3: tessera::Rows:", "virtual")

    def test_marks_of_what_every_file_compiles(self):
        for text in ("TESSERA_API inline int half(int n) { return n / 2; }",
                     "template <class T> TESSERA_API T most(T a) { return a; }",
                     "struct TESSERA_API Plain { int a = 0; };",
                     "template <class T> class TESSERA_API Holder { T get(); };"):
            self.assert_reported(text, "remove TESSERA_API")

    def test_marks_of_members(self):
        self.assert_reported(
            "struct TESSERA_API Box { TESSERA_API int size() const; };",
            "tessera::Box::size", "its class is marked; remove")
        problems = self.problems("struct Box { TESSERA_API int size() const; };")
        self.assertEqual(len(problems), 2, problems)
        self.assertIn("move TESSERA_API to tessera::Box", problems[0])

    def test_detail_is_marked_where_code_of_headers_uses_it(self):
        hidden = "namespace detail { int run(int n); class Plan { Plan(); }; }"
        call = "template <class T> int go(T n) {{ return detail::{}(n); }}"
        self.assertEqual(self.problems(hidden), [])
        self.assertEqual(self.problems(
            hidden, "class A { friend int detail::run(int n); };"), [])
        for name in ("run", "Plan"):
            problems = self.problems(hidden, call.format(name))
            self.assertEqual(len(problems), 1, problems)
            self.assertIn(f"tessera::detail::{name}:", problems[0])
        self.assert_reported("namespace detail { TESSERA_API int run(int n); }",
                             "no code of a public header uses it; remove")
        layer = hidden.replace("detail", "detail::inline box_layer")
        problems = self.problems(layer, call.format("run"))
        self.assertEqual(len(problems), 1, problems)
        self.assertIn("tessera::detail::box_layer::run:", problems[0])

    def test_comments_and_macros_do_not_count(self):
        self.assertEqual(self.problems(
            "// int half(int n);\n/* int half();\n */\n"
            "#define HALF \\\n  int half(int n);\n"), [])


class QualifiedNameTest(unittest.TestCase):
    def test_names_of_demangled_functions(self):
        for text, name in (
                ("tessera::whole(int)", "tessera::whole"),
                ("tessera::to_string[abi:cxx11](tessera::Box const&)",
                 "tessera::to_string"),
                ("tessera::Box::~Box()", "tessera::Box::~Box"),
                ("tessera::operator<<(std::ostream&, tessera::Box const&)",
                 "tessera::operator<<"),
                ("tessera::operator<(tessera::Box, tessera::Box)",
                 "tessera::operator<"),
                ("tessera::A::operator[](std::vector<int> const&) const",
                 "tessera::A::operator[]"),
                ("std::hash<tessera::Box>::operator()(tessera::Box const&) const",
                 "std::hash::operator()"),
                ("tessera::A::operator bool() const",
                 "tessera::A::operator bool"),
                ("std::vector<tessera::Box> tessera::read<std::vector<int> >(int)",
                 "tessera::read"),
                ("tessera::A::run(std::function<void (int)> const&)",
                 "tessera::A::run")):
            self.assertEqual(check_exports.qualified_name(text), name)


HEADER = """#pragma once
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>
#include <tessera/export.h>
namespace tessera {
struct TESSERA_API Box {
  Box();
  int size() const;
  int twice() const { return 2 * size(); }
  std::vector<int> sizes;
};
TESSERA_API std::string to_string(const Box& box);
TESSERA_API std::string to_string(int kind);
TESSERA_API bool operator<(const Box& a, const Box& b);
class TESSERA_API BoxError : public std::runtime_error {
  using runtime_error::runtime_error;
};
class TESSERA_API Spec {
 public:
  virtual ~Spec() = default;
  virtual int shard() const;
};
template <class T> T read(int text);
template <> TESSERA_API std::vector<Box> read(int text);
}
template <> struct TESSERA_API std::hash<tessera::Box> {
  size_t operator()(const tessera::Box& box) const;
};
"""
SOURCE = """#include <tessera/box.h>
namespace tessera {
namespace detail { int secret(int n) { return n; } }
Box::Box() : sizes(3) {}
int Box::size() const { return detail::secret(3) + twice() * 0; }
std::string to_string(const Box& box) {
  if (box.sizes.empty()) throw BoxError("empty");
  return std::to_string(box.size());
}
std::string to_string(int kind) { return std::to_string(kind); }
bool operator<(const Box& a, const Box& b) { return a.size() < b.size(); }
int Spec::shard() const { return 1; }
template <> std::vector<Box> read(int text) {
  std::vector<Box> all;
  all.push_back(Box());
  all.resize(text);
  return all;
}
}
size_t std::hash<tessera::Box>::operator()(const tessera::Box& box) const {
  return box.size();
}
"""


@unittest.skipUnless(COMPILER and shutil.which("nm"), "no compiler, or no nm")
class LibraryTest(unittest.TestCase):
    def problems(self, options, source=SOURCE):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            export = (ROOT / "include/tessera/export.h").read_text()
            write(root, {"box.h": HEADER, "export.h": export})
            (root / "box.cpp").write_text(source)
            library = root / "libtessera.so"
            subprocess.run(
                [COMPILER, "-std=c++20", "-fPIC", "-shared", *options,
                 f"-I{root / 'include'}", str(root / "box.cpp"), "-o",
                 str(library)], check=True)
            declared, uses = check_exports.read_tree(root)
            self.assertEqual(
                list(check_exports.check_headers(declared, uses)), [])
            return list(check_exports.check_library(
                declared, check_exports.read_symbols(library), library.name))

    def test_a_library_that_shows_what_is_marked(self):
        self.assertEqual(self.problems(HIDDEN + SCRIPT), [])

    def test_symbols_that_nobody_marked(self):
        problems = self.problems(SCRIPT)
        self.assertTrue(any("libtessera.so:0: tessera::detail::secret(int): no "
                            "public header marks it" in p for p in problems),
                        problems)
        self.assertFalse(any("of 1 functions" in p for p in problems))

    def test_templates_of_std(self):
        problems = self.problems(HIDDEN)
        self.assertTrue(problems)
        for problem in problems:
            self.assertRegex(problem, r"libtessera.so:0: .*\bstd::")

    def test_a_c_symbol(self):
        problems = self.problems(
            HIDDEN, SOURCE + 'extern "C" TESSERA_API int tessera_x() '
            '{ return 1; }\n')
        self.assertEqual(len([p for p in problems if "tessera_x" in p]), 1,
                         problems)

    def test_a_function_that_is_marked_and_not_there(self):
        for line, name, counts in (
                ("std::string to_string(int kind) "
                 "{ return std::to_string(kind); }",
                 "box.h:14: tessera::to_string:", "of 2 functions"),
                ("Box::Box() : sizes(3) {}", "box.h:9: tessera::Box::Box:",
                 "of 1 functions"),
                ("int Spec::shard() const { return 1; }",
                 "box.h:23: tessera::Spec::shard:", "of 1 functions")):
            self.assertIn(line, SOURCE)
            problems = self.problems(HIDDEN + SCRIPT, SOURCE.replace(line, ""))
            self.assertEqual(len(problems), 1, problems)
            self.assertIn(name, problems[0])
            self.assertIn(counts, problems[0])

    def test_a_version_script_that_forgets_one(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "exports.map"
            text = (ROOT / "src/exports.map").read_text()
            script.write_text(text.replace("_ZNKSt4hash", "_ZNKSt5other"))
            problems = self.problems(
                HIDDEN + [f"-Wl,--version-script={script}"])
        self.assertEqual(len(problems), 1, problems)
        self.assertIn("std::hash<tessera::Box>::operator()", problems[0])


if __name__ == "__main__":
    unittest.main()
