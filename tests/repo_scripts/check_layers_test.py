"""Plants each kind of forbidden include, place and definition and sees it reported."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_layers  # noqa: E402
import cpp_units  # noqa: E402
import layer_folders  # noqa: E402


class CheckLayersTest(unittest.TestCase):
    def problems(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check_layers.check_tree(root)[1]

    def assert_reported(self, files, *words):
        problems = self.problems(files)
        self.assertEqual(len(problems), 1, problems)
        for word in words:
            self.assertIn(word, problems[0])

    def test_allowed_includes_are_not_reported(self):
        self.assertEqual(self.problems({
            "include/tessera/layout/box.h": "#include <c10/util/Exception.h>\n",
            "include/tessera/comm/world.h":
                "#include <ATen/core/Tensor.h>\n#include <tessera/layout/box.h>\n",
            "src/comm/engine/c10d/store.h":
                "#include <torch/csrc/distributed/c10d/Store.hpp>\n",
            "src/comm/ring.h": "",
            "src/comm/ring.cpp": '#include "comm/ring.h"\n',
            "tests/comm/world_test.cpp": "#include <tessera/comm/world.h>\n",
            "cli/main.cpp":
                '#include "show.h"\n#include <tessera/layout/box.h>\n',
            "cli/show.h": "",
            "src/base/text_table.h": "",
            "cli/text/terminal.h": "#include <base/text_table.h>\n",
            "benchmarks/bench.cpp": '#include "cli/text/terminal.h"\n',
        }), [])

    def test_a_command_that_includes_base(self):
        self.assert_reported({
            "src/base/text_table.h": "",
            "cli/show/show.cpp": "#include <base/text_table.h>\n",
        }, "cli/show/show.cpp:1:", "cli may include public headers only")

    def test_a_cycle_through_paths_from_the_root(self):
        self.assert_reported({
            "cli/command.h": '#include "cli/text/terminal.h"\n',
            "cli/text/terminal.h": '#include "cli/command.h"\n',
        }, "cycle")

    def test_a_layer_that_includes_a_higher_one(self):
        self.assert_reported({
            "include/tessera/comm/world.h": "",
            "src/layout/box.cpp": "\n#include <tessera/comm/world.h>\n",
        }, "src/layout/box.cpp:2:", "layout may not include comm")

    def test_a_private_header_of_a_higher_layer(self):
        self.assert_reported({
            "src/tensor/impl/meta.h": "",
            "src/comm/world.cpp": '#include "tensor/impl/meta.h"\n',
        }, "comm may not include tensor")

    def test_a_test_that_includes_a_higher_layer(self):
        self.assert_reported({
            "include/tessera/comm/world.h": "",
            "tests/layout/box_test.cpp": "#include <tessera/comm/world.h>\n",
        }, "layout may not include comm")

    def test_a_public_header_that_includes_a_private_one(self):
        self.assert_reported({
            "src/comm/ring.h": "",
            "include/tessera/comm/world.h": '#include "comm/ring.h"\n',
        }, "public header includes a private one")

    def test_a_program_that_includes_a_private_header(self):
        self.assert_reported({
            "src/comm/ring.h": "",
            "examples/01_layout.cpp": '#include "../src/comm/ring.h"\n',
        }, "examples may include public headers only")

    def test_tensors_in_a_pure_layer(self):
        self.assert_reported({
            "src/layout/box.cpp": "#include <ATen/core/Tensor.h>\n",
        }, "layout is pure")

    def test_all_of_torch(self):
        self.assert_reported({
            "include/tessera/tensor/dtensor.h": "#include <torch/torch.h>\n",
        }, "never all of torch")

    def test_c10d_outside_its_engine(self):
        text = "#include <torch/csrc/distributed/c10d/Store.hpp>\n"
        for name in ("include/tessera/comm/world.h", "src/comm/store.cpp",
                     "src/tensor/dispatch/kernels.cpp"):
            self.assert_reported({name: text}, "c10d is included by")

    def test_the_header_of_all_layers_inside_a_layer(self):
        self.assert_reported({
            "include/tessera/tessera.h": "",
            "src/comm/world.cpp": "#include <tessera/tessera.h>\n",
        }, "header of all layers")

    def test_the_header_below_all_layers(self):
        box = "include/tessera/layout/box.h"
        lowest = "include/tessera/export.h"
        self.assertEqual(self.problems(
            {box: "#include <tessera/export.h>\n", lowest: ""}), [])
        self.assert_reported(
            {box: "", lowest: "#include <tessera/layout/box.h>\n"},
            "export.h:1:", "below all layers")

    def test_an_include_cycle(self):
        self.assert_reported({
            "tests/layout/a.h": '#include "layout/b.h"\n',
            "tests/layout/b.h": '#include "a.h"\n',
        }, "include cycle", "a.h", "b.h")

    def test_a_folder_that_is_no_layer(self):
        self.assert_reported({"src/utils/text.h": ""}, "utils is not a layer")

    def test_a_forbidden_cmake_dependency(self):
        self.assert_reported({
            "src/CMakeLists.txt":
                "tessera_layer(layout\n  SOURCES a.cpp\n  DEPENDS comm\n"
                "  LINK c10)\n",
        }, "layout may not depend on comm")

    def test_commented_includes_do_not_count(self):
        self.assertEqual(self.problems({
            "src/layout/box.cpp": "// #include <ATen/core/Tensor.h>\n"
                                  "/*\n#include <torch/torch.h>\n*/\n",
        }), [])

    def test_the_table_has_no_cycle(self):
        seen = set()
        for layer, lower in check_layers.LAYERS.items():
            self.assertLessEqual(set(lower), seen)
            seen.add(layer)




class FoldersTest(unittest.TestCase):
    problems = CheckLayersTest.problems
    assert_reported = CheckLayersTest.assert_reported

    def test_a_folder_that_includes_a_later_one(self):
        self.assert_reported({
            "src/tensor/fast/call_key.h": "",
            "src/tensor/impl/wrap.cpp": "\n#include <tensor/fast/call_key.h>\n",
        }, "src/tensor/impl/wrap.cpp:2:", "tensor/impl may not include fast")

    def test_a_folder_that_includes_an_earlier_one(self):
        self.assertEqual(self.problems({
            "src/tensor/impl/wrap.h": "",
            "src/tensor/fast/call_key.cpp": "#include <tensor/impl/wrap.h>\n",
        }), [])

    def test_a_public_header_belongs_to_the_folder_of_its_source(self):
        self.assert_reported({
            "include/tessera/tensor/explain.h": "",
            "src/tensor/inspect/explain.cpp": "#include <tessera/tensor/explain.h>\n",
            "src/tensor/run/run_decision.cpp":
                "#include <tessera/tensor/explain.h>\n",
        }, "run_decision.cpp:1:", "tensor/run may not include inspect")

    def test_a_public_header_that_belongs_nowhere(self):
        self.assert_reported({"include/tessera/tensor/answers.h": ""},
                             "answers.h:1:", "PUBLIC names no folder")

    def test_a_folder_that_is_not_listed(self):
        self.assert_reported({"src/tensor/drawer/things.h": ""},
                             "drawer is not a folder of tensor")
        self.assert_reported({"src/tensor/things.h": ""},
                             ". is not a folder of tensor")

    def test_a_circle_of_units(self):
        self.assert_reported({
            "src/comm/call/a.h": "",
            "src/comm/call/a.cpp": '#include "comm/call/b.h"\n',
            "src/comm/call/b.h": "",
            "src/comm/call/b.cpp": '#include "comm/call/a.h"\n',
        }, "src/comm/call/a:1:", "2 units include each other in a circle",
            "src/comm/call/b")

    def test_a_source_and_its_header_are_no_circle(self):
        self.assertEqual(self.problems({
            "include/tessera/comm/world.h": "",
            "src/comm/a.h": "#include <tessera/comm/world.h>\n",
            "src/comm/a.cpp": '#include "comm/a.h"\n#include "comm/b.h"\n',
            "src/comm/b.h": "",
            "src/comm/world.cpp":
                '#include <tessera/comm/world.h>\n#include "comm/a.h"\n',
        }), [])

    def test_too_many_files(self):
        many = {f"src/comm/log/log_{i}.cpp": "" for i in range(26)}
        self.assert_reported(many, "src/comm/log:1:", "26 files", "at most 25")
        families = {f"src/rules/families/family_{i}.cpp": "" for i in range(26)}
        self.assertEqual(self.problems(families), [])

    def test_a_function_that_is_defined_elsewhere(self):
        self.assert_reported({
            "src/comm/call/a.h": "namespace tessera {\n\nint answer(int x);\n}\n",
            "src/comm/call/b.cpp": "namespace tessera {\n"
                                   "int answer(int x) { return x; }\n}\n",
        }, "src/comm/call/a.h:3:", "tessera::answer is defined in src/comm/call/b.cpp")

    def test_a_member_that_is_defined_elsewhere(self):
        self.assert_reported({
            "include/tessera/comm/world.h":
                "namespace tessera {\nclass World {\n public:\n  World();\n"
                "  int size() const;\n};\n}\n",
            "src/comm/world.cpp": "namespace tessera {\nWorld::World() {}\n}\n",
            "src/comm/other.cpp":
                "int tessera::World::size() const { return 1; }\n",
        }, "world.h:5:", "tessera::World::size is defined in src/comm/other.cpp")

    def test_a_part_of_the_source_of_a_header(self):
        self.assertEqual(self.problems({
            "src/comm/call/a.h": "int answer();\nint question();\n",
            "src/comm/call/a.cpp": "int answer() { return 1; }\n",
            "src/comm/call/a_question.cpp": "int question() { return 2; }\n",
        }), [])

    def test_a_definition_that_the_list_allows(self):
        files = {
            "src/comm/this_rank.h": "int this_rank();\n",
            "src/comm/world.cpp": "int this_rank() { return 0; }\n",
        }
        self.assertEqual(self.problems(files), [])
        files["src/comm/this_rank.cpp"] = files.pop("src/comm/world.cpp")
        self.assert_reported(files, "this_rank.h:1:", "needs no excuse any more")

    def test_a_type_that_is_defined_twice(self):
        move = "namespace tessera::detail {\nstruct Move {\n  int to;\n};\n}\n"
        self.assert_reported({
            "src/plan/search/a.h": move.replace("Move", "Step"),
            "src/comm/call/b.h": move.replace("Move", "Step"),
        }, "src/comm/call/b.h:2:", "tessera::detail::Step is also defined in",
            "src/plan/search/a.h")

    def test_a_common_name_beside_those_of_users(self):
        for text in ("namespace tessera {\nstruct Row {};\n}\n",
                     "namespace tessera { class [[nodiscard]] Row {}; }\n",
                     "namespace tessera { class TESSERA_API Row {}; }\n"):
            self.assert_reported({"src/plan/search/a.h": text},
                                 "tessera::Row: programs have types of that name")
        for text in ("namespace tessera::sharded_tensor { struct Row {}; }\n",
                     "namespace tessera { class Rows { struct Row {}; }; }\n",
                     "namespace tessera { class Rows { using Row = int; }; }\n",
                     "namespace tessera {\nnamespace detail { struct Row {}; }\n}\n"):
            self.assertEqual(self.problems({"src/plan/search/a.h": text}), [])

    def test_types_of_two_layers(self):
        move = "namespace tessera::detail::inline {}_layer {{ struct Move {{}}; }}\n"
        self.assertEqual(self.problems({
            "src/plan/search/a.h": move.format("plan"),
            "src/comm/call/b.h": move.format("comm"),
        }), [])

    def test_types_that_are_not_the_same(self):
        self.assertEqual(self.problems({
            "src/plan/search/a.h": "namespace tessera::a { struct Step {}; }\n",
            "src/comm/call/b.h": "namespace tessera::b { struct Step {}; }\n",
            "src/comm/call/c.cpp": "namespace { struct Step {}; }\n",
            "src/comm/call/d.cpp": "namespace { struct Step {}; }\n",
            "src/comm/call/e.h": "namespace tessera::a { struct Step; }\n",
        }), [])

    def test_every_listed_folder_and_header_is_there(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        for layer, folders in layer_folders.FOLDERS.items():
            self.assertEqual(len(folders), len(set(folders)))
            for folder in folders:
                self.assertTrue((root / "src" / layer / folder).is_dir(),
                                f"{layer}/{folder}")
        for header in layer_folders.ELSEWHERE:
            self.assertTrue((root / header).is_file(), header)


class CppUnitsTest(unittest.TestCase):
    """What the reader of declarations and definitions understands."""

    def names(self, kind, text):
        return [entry.name for entry in cpp_units.read(text) if entry.kind == kind]

    def test_declarations(self):
        text = """
            #define NOT_A(x) int x();
            namespace tessera::detail {
            // int comment();
            TESSERA_API std::vector<int> list(const std::map<int, int>& m = {});
            [[noreturn]] void fail(const char* text);
            inline int defined_here() { return 1; }
            template <class T> T generic(T value);
            constexpr int kNumber = sizeof(int);
            extern const std::function<void(int)> callback;
            class Thing : public Base<int> {
             public:
              explicit Thing(int x);
              ~Thing() override;
              Thing(const Thing&) = delete;
              virtual void pure() = 0;
              bool operator==(const Thing& other) const;
              int operator()(int x) const;
              int size() const { return size_; }
              friend int outside(const Thing& t);
             private:
              struct Inner { void run(); };
              int size_ = 0;
            };
            }
        """
        self.assertEqual(self.names("declared", text), [
            "tessera::detail::" + name for name in (
                "list", "fail", "Thing::Thing", "Thing::~Thing",
                "Thing::operator==", "Thing::operator()", "Thing::Inner::run")])

    def test_definitions(self):
        text = """
            namespace tessera {
            namespace { int hidden() { return 1; } }
            Thing::Thing(int x) : size_{x}, other_(x) {}
            Thing::Thing() : Thing{0} {
              if (a[b[0]] < 1) { go(); }
            }
            bool detail::Other::operator==(const Other& o) const {
              return [&] { return true; }();
            }
            template <class T> T generic(T value) { return value; }
            const std::vector<int> kTable = {1, 2, 3};
            int last() { return 1'000'000; }
            }
        """
        self.assertEqual(self.names("defined", text), [
            "tessera::Thing::Thing", "tessera::Thing::Thing",
            "tessera::detail::Other::operator==", "tessera::last"])

    def test_types(self):
        text = """
            namespace tessera {
            struct A {};
            struct B;
            class TESSERA_API C final : public A {};
            enum class D : uint8_t { kOne };
            template <> struct hash<A> { int x; };
            struct alignas(64) E { struct Inner {}; };
            }
        """
        self.assertEqual(self.names("type", text), [
            "tessera::" + name for name in ("A", "C", "D", "hash<A>", "E")])


if __name__ == "__main__":
    unittest.main()
