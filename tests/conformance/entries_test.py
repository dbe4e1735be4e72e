"""Every entry passes on Tessera: one test each, all run by one pool of processes."""
import pytest
import run
from conftest import arguments


@pytest.fixture(scope="session")
def results(request) -> dict:
    """Runs all chosen entries; the first test waits for all of them."""
    args = arguments(request.config)
    args.case = None
    return {r.name: r for r in run.run_backend("tessera", args)}


def test_entry(entry, results, request) -> None:
    result = results[entry]
    args = arguments(request.config)
    lines = []
    for failure in result.failures[:5]:
        lines.append(f"{failure['phase']}, {failure['kind']}: {failure['text'][:600]}")
        lines.append(run.repeat_command(failure["case"], args, "tessera"))
    assert not result.failures, "\n".join(lines)
