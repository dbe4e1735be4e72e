"""mypy --strict on the stubs and on a program of a user who has types."""
import pathlib
import subprocess
import sys

import pytest
import tessera
from processes import PROGRAMS

PACKAGE = pathlib.Path(tessera.__file__).parent
PROGRAM = PROGRAMS / "typed_program.py"


def check(*files, cache):
    """Stubs are read by name, so that what is beside them is not."""
    pytest.importorskip("mypy", reason="pip install mypy")
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), *map(str, files)],
        text=True, capture_output=True, timeout=400, cwd=PACKAGE.parent)


def test_the_stubs_and_a_program_have_types(tmp_path_factory):
    cache = tmp_path_factory.mktemp("mypy")
    stubs = sorted(PACKAGE.glob("*.pyi"))
    assert len(stubs) == 4
    result = check(*stubs, PROGRAM, cache=cache)
    assert result.returncode == 0, result.stdout + result.stderr
    wrong = cache / "wrong.py"
    wrong.write_text('import tessera\ntessera.ones([2], "mesh", 3)\n'
                     'tessera.Layout([2], 4, "R").boxes("a")\n')
    result = check(wrong, cache=cache)
    assert result.stdout.count("[arg-type]") == 4, result.stdout


def test_the_program_runs():
    result = subprocess.run([sys.executable, str(PROGRAM)], text=True,
                            capture_output=True, timeout=100)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("typed ['all_")
