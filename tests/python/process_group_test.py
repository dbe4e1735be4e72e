"""Programs inside a running torch.distributed: training, DTensors there and back."""
import json

import models
import processes
import pytest


@pytest.fixture(scope="module")
def runs():
    return [json.loads(output)
            for output in processes.run_job("train_in_group.py", 2)]


@pytest.mark.parametrize("kind", ["mlp", "transformer"])
def test_losses_in_two_processes_are_those_of_the_plain_run(runs, kind):
    want = models.train_plain(kind)
    assert len(runs) == 2
    for run in runs:
        assert run[kind] == pytest.approx(want, rel=0, abs=1e-10)


@pytest.mark.parametrize("size", [2, 4])
def test_100_random_dtensors_go_there_and_back_sharing_memory(size):
    outputs = processes.run_job("round_trip.py", size)
    assert outputs == [f"rank {rank}: 100 cases\n" for rank in range(size)]
