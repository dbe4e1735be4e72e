"""Nothing of ours is hidden from the sanitizers.

Suppression files (tests/sanitizer/*.supp) name libraries of others only, and our
sources do not switch the sanitizers off.
"""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Whole libraries: LibTorch and what it brings, OpenMP, MPI, Python.
LIBRARIES = ("torch", "torch_cpu", "torch_python", "c10", "gomp", "omp", "iomp5",
             "mpi", "mpi_cxx", "open-rte", "open-pal", "pmix", "hwloc", "event",
             "python3")
KINDS = ("race", "race_top", "deadlock", "thread", "mutex", "signal", "leak",
         "called_from_lib")
# `called_from_lib:libmpi.so`, `leak:libopen-pal`, `race:libgomp.so.1`.
LINE = re.compile(rf"({'|'.join(KINDS)}):lib({'|'.join(LIBRARIES)})"
                  r"([-.][\w.]*)?(\.so[\d.]*)?\*?")
# Functions of LibTorch's that are known by name: narrower than its whole library, whose
# frames are also below every kernel of ours.
FUNCTION = re.compile(r"(race|race_top):(std::_Sp_counted_ptr_inplace<)?"
                      r"(dnnl::|gloo::|torch::autograd::|c10::ivalue::|c10d::)[\w:~]+")
SWITCHED_OFF = re.compile(
    r"no_sanitize|__(lsan|asan|tsan|ubsan)_\w*(suppress|ignore|disable|default_options)")


def wrong_lines(text):
    """Returns the lines that name anything but a library of others."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")
            and (not (LINE.fullmatch(line) or FUNCTION.fullmatch(line))
                 or "tessera" in line.lower())]


class SuppressionsTest(unittest.TestCase):
    def test_files_name_libraries_of_others(self):
        for file in sorted((ROOT / "tests/sanitizer").glob("*.supp")):
            self.assertEqual(wrong_lines(file.read_text()), [], file.name)

    def test_sources_do_not_switch_sanitizers_off(self):
        for folder in ("include", "src", "cli", "python", "tests", "examples"):
            for file in sorted((ROOT / folder).rglob("*")):
                if file.suffix in (".h", ".cpp"):
                    self.assertNotRegex(file.read_text(), SWITCHED_OFF, str(file))

    def test_libraries_of_others_may_be_named(self):
        text = ("# OpenMPI keeps what it allocates.\n\nleak:libmpi.so\n"
                "leak:libopen-pal.so.40\ncalled_from_lib:libgomp.so.1\n"
                "leak:libpython3.11.so.1.0\nrace:dnnl::impl::utils::rw_mutex_t\n"
                "race_top:torch::autograd::GraphTask::~GraphTask\n"
                "race:std::_Sp_counted_ptr_inplace<torch::autograd::GraphTask\n")
        self.assertEqual(wrong_lines(text), [])

    def test_ours_and_anything_are_refused(self):
        for line in ("leak:libtessera_comm.so", "race:tessera::", "race:*", "leak:lib",
                     "race:libtorch*tessera", "leak:run_ranks", "race:std::",
                     "race:torch::autograd::*", "race:at::native::",
                     "race:std::_Sp_counted_ptr_inplace<tessera::detail::Message"):
            self.assertEqual(wrong_lines(line), [line])


if __name__ == "__main__":
    unittest.main()
