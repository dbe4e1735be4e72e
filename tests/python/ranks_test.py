"""Ranks as threads: results, exceptions, and who holds the interpreter's lock."""
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import pytest
import tessera
import torch


def test_results_come_in_the_order_of_ranks():
    def body():
        time.sleep(0.02 * (3 - tessera.rank()))
        return tessera.rank() * 10, tessera.world_size()

    assert tessera.run_ranks(4, body) == [(0, 4), (10, 4), (20, 4), (30, 4)]


def test_a_rank_that_waits_lets_others_run_python():
    """One rank computes in Python for a while; the others wait in a collective."""
    def body():
        x = torch.ones(1)
        if tessera.rank() == 0:
            total = sum(i * i for i in range(300_000))
            assert total > 0
        tessera.init().communicator().all_reduce(x)
        return x.item()

    assert tessera.run_ranks(4, body, deadline=20) == [4.0] * 4


@pytest.mark.parametrize("call", [
    lambda x: x[3],                     # LibTorch keeps the lock in these
    lambda x: x[1:3, 0],
    lambda x: x[None],
    lambda x: torch.tensor([x[0, 0], x[5, 1]]),
    lambda x: x.sum().item(),
    lambda x: float(x[2, 1]),
    lambda x: bool((x > 0).any()),
    lambda x: x.__setitem__(2, 7.0),
    lambda x: list(x),
    lambda x: tessera.full_tensor(x),
    lambda x: 3.0 in x,
])
def test_calls_that_communicate_under_the_lock_do_not_hang(call):
    def body():
        mesh = tessera.init_device_mesh("cpu", (3,))
        x = tessera.distribute_tensor(torch.arange(12.0).reshape(6, 2), mesh, "S(0)")
        for _ in range(3):
            call(x)

    tessera.run_ranks(3, body, deadline=20)


def test_a_thread_of_a_rank_joins_it_by_a_guard():
    def body():
        world, seen = tessera.init(), []

        def load():
            with pytest.raises(ValueError, match="none of the ranks.*RankGuard"):
                tessera.rank()
            with tessera.RankGuard(world, "loader"):
                x = torch.tensor([10.0 ** tessera.rank()])
                tessera.init().communicator().all_reduce(x)
                seen.append((tessera.rank(), tessera.world_size(), x.item()))
            with pytest.raises(ValueError):
                tessera.world_size()

        thread = threading.Thread(target=load)
        thread.start()
        thread.join()
        return seen

    assert tessera.run_ranks(3, body, deadline=20) == [
        [(r, 3, 111.0)] for r in range(3)]


def test_an_asynchronous_result_may_be_dropped():
    def body():
        mesh = tessera.init_device_mesh("cpu", (3,))
        x = tessera.distribute_tensor(torch.arange(12.0), mesh, "S(0)")
        for _ in range(5):
            y = tessera.redistribute(x, "R", async_op=True)
            del y
        return tessera.redistribute(x, "R", async_op=True).sum().item()

    assert tessera.run_ranks(3, body, deadline=20) == [66.0] * 3


def test_backward_hooks_in_python_do_not_hang():
    def body():
        mesh = tessera.init_device_mesh("cpu", (2,))
        w = tessera.ones([4], mesh, "S(0)", requires_grad=True)
        seen = []
        w.register_hook(lambda g: seen.append(tessera.full_tensor(g).sum().item()))
        (w * w).sum().backward()
        return seen

    assert tessera.run_ranks(2, body, deadline=20) == [[8.0], [8.0]]


def test_other_threads_of_python_run_while_ranks_wait():
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(1)
            time.sleep(0.001)

    clock = threading.Thread(target=tick)
    clock.start()
    try:
        def body():
            if tessera.rank() == 0:
                time.sleep(0.3)
            tessera.init().communicator().barrier()

        tessera.run_ranks(2, body)
    finally:
        stop.set()
        clock.join()
    assert len(ticks) > 20


class Unusual(Exception):
    """An exception with fields of its own."""

    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code


def fail_deep_inside():
    raise Unusual(41)


def test_the_exception_of_a_rank_reaches_the_caller_with_its_traceback():
    ended = []

    def body():
        try:
            if tessera.rank() == 2:
                fail_deep_inside()
            tessera.init().communicator().barrier()
        finally:
            ended.append(tessera.rank())

    with pytest.raises(Unusual) as caught:
        tessera.run_ranks(4, body, deadline=20)
    assert caught.value.code == 41
    assert "on rank 2 of 4" in getattr(caught.value, "__notes__", ["on rank 2 of 4"])
    text = "".join(traceback.format_exception(caught.value))
    assert "fail_deep_inside" in text
    assert sorted(ended) == [0, 1, 2, 3]


def test_ranks_that_wait_hear_of_the_exception():
    heard = {}

    def body():
        if tessera.rank() == 1:
            raise Unusual(7)
        try:
            tessera.init().communicator().barrier()
        except RuntimeError as error:
            heard[tessera.rank()] = str(error)
            raise

    with pytest.raises(Unusual, match="code 7"):
        tessera.run_ranks(3, body, deadline=20)
    assert sorted(heard) == [0, 2]
    assert "Unusual: code 7" in heard[0]


def test_mismatched_calls_are_an_error_on_all_ranks():
    def body():
        x = torch.ones(2 + tessera.rank())
        tessera.init().communicator().all_reduce(x)

    with pytest.raises(RuntimeError, match="ranks disagree"):
        tessera.run_ranks(2, body, deadline=20)


def test_a_deadline_ends_a_wait():
    def body():
        if tessera.rank() == 0:
            time.sleep(1.5)
        tessera.init().communicator().barrier()

    with pytest.raises(RuntimeError, match="500 ms"):
        tessera.run_ranks(2, body, deadline=0.5)


def test_errors_of_the_start():
    with pytest.raises(ValueError, match="number of ranks must be 1 to"):
        tessera.run_ranks(0, lambda: None)
    with pytest.raises(ValueError, match="a rank cannot start ranks of its own"):
        tessera.run_ranks(2, lambda: tessera.run_ranks(2, lambda: None))
    with pytest.raises(ValueError, match="seconds must be positive"):
        tessera.run_ranks(2, lambda: None, deadline=-1)
    with pytest.raises(TypeError):
        tessera.run_ranks(2, "no function")


def test_grad_mode_of_the_caller_holds_in_the_ranks():
    with torch.no_grad():
        assert tessera.run_ranks(2, torch.is_grad_enabled) == [False, False]
    assert tessera.run_ranks(2, torch.is_grad_enabled) == [True, True]


def test_worlds_can_follow_each_other_and_nothing_is_left():
    before = threading.active_count()
    for n in (1, 3, 2, 8):
        assert tessera.run_ranks(n, tessera.rank) == list(range(n))
    assert threading.active_count() == before


def test_a_simulated_rank_has_the_shapes_of_a_large_world():
    def body():
        mesh = tessera.init_device_mesh("cpu", (64, 64), ["dp", "tp"])
        x = tessera.ones([128, 256], mesh, "S(0) S(1)")
        return list(tessera.to_local(x).shape), mesh.coordinate

    assert tessera.run_simulated(body, rank=65, size=4096) == ([2, 4], [1, 1])
    with pytest.raises(ValueError, match="rank must be 0 to size - 1"):
        tessera.run_simulated(body, rank=9, size=4)


def test_an_interrupt_ends_ranks_that_run_python_and_those_that_wait():
    program = textwrap.dedent("""
        import tessera, time
        def body():
            if tessera.rank() == 0:
                print("started", flush=True)
                while True:
                    time.sleep(0.01)
            tessera.init().communicator().barrier()
        try:
            tessera.run_ranks(3, body)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    child = subprocess.Popen([sys.executable, "-c", program], text=True,
                             stdout=subprocess.PIPE, env=os.environ)
    try:
        assert child.stdout.readline() == "started\n"
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert (out, child.returncode) == ("interrupted\n", 0)
