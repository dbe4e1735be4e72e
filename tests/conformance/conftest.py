"""Options of the pytest form: pytest tests/conformance --quick --ops '^linalg'."""
import run

OPTIONS = {"--ops": "", "--shard": "1/1", "--seed": "0", "--jobs": "2",
           "--limit": "30"}


def pytest_addoption(parser) -> None:
    for name, default in OPTIONS.items():
        parser.addoption(name, default=default)
    parser.addoption("--quick", action="store_true")


def arguments(config):
    """Returns the arguments of run.py that pytest was given."""
    argv = ["--backend", "tessera"]
    for name in OPTIONS:
        argv += [name, config.getoption(name)]
    if config.getoption("--quick"):
        argv.append("--quick")
    return run.arguments(argv)


def pytest_generate_tests(metafunc) -> None:
    if "entry" in metafunc.fixturenames:
        metafunc.parametrize("entry", run.chosen_entries(arguments(metafunc.config)))
