"""Plants each kind of forbidden include and sees it reported."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_layers  # noqa: E402


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
        }), [])

    def test_a_layer_that_includes_a_higher_one(self):
        self.assert_reported({
            "include/tessera/comm/world.h": "",
            "src/layout/box.cpp": "\n#include <tessera/comm/world.h>\n",
        }, "src/layout/box.cpp:2:", "layout may not include comm")

    def test_a_private_header_of_a_higher_layer(self):
        self.assert_reported({
            "src/tensor/meta.h": "",
            "src/comm/world.cpp": '#include "tensor/meta.h"\n',
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
                     "src/tensor/dispatch.cpp"):
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
            "include/tessera/layout/a.h": "#include <tessera/layout/b.h>\n",
            "include/tessera/layout/b.h": '#include "a.h"\n',
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


if __name__ == "__main__":
    unittest.main()
