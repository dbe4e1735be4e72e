#!/usr/bin/env python3
"""Runs sharded tensors over the groups of Python's torch.distributed.

Starts 2 and 4 Python processes with a Gloo group each (a store in a private
folder, no port), loads a probe library there and has it work over the world's
group and over a smaller one; then torch.distributed must still work.

  C10D_PROBE=.../libc10d_probe.so tests/engines/c10d_python_test.py
"""
import ctypes
import os
import subprocess
import sys
import tempfile
import unittest

LIMIT_S = 100
PROBE = os.environ["C10D_PROBE"]


def work(rank, size, store):
    """What one rank does."""
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"file://{store}",
                            rank=rank, world_size=size)
    probe = ctypes.CDLL(PROBE)
    error = ctypes.create_string_buffer(4000)

    def check(group):
        name = group.group_name.encode()
        if probe.tessera_probe(name, error, ctypes.c_size_t(len(error))) != 0:
            sys.exit(f"rank {rank}: {error.value.decode()}")

    def check_torch(group, ranks):
        total = torch.tensor([rank + 1.0])
        dist.all_reduce(total, group=group)
        assert total.item() == sum(r + 1 for r in ranks), total

    everyone = list(range(size))
    # One of torch's own is under way while the probe works.
    mine = torch.full((1000,), float(rank))
    pending = dist.all_reduce(mine, async_op=True)
    check(dist.group.WORLD)
    pending.wait()
    assert mine[0].item() == sum(everyone)
    check_torch(dist.group.WORLD, everyone)

    last_two = everyone[-2:]
    pair = dist.new_group(last_two)
    if rank in last_two:
        check(pair)
        check_torch(pair, last_two)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} done")


class C10dPythonTest(unittest.TestCase):
    def run_ranks(self, size):
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                subprocess.Popen(
                    [sys.executable, __file__, "--rank", str(rank), str(size),
                     os.path.join(folder, "store")],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                    env={**os.environ, "OMP_NUM_THREADS": "1"})
                for rank in range(size)]
            try:
                outputs = [rank.communicate(timeout=LIMIT_S)[0]
                           for rank in ranks]
            finally:
                for rank in ranks:
                    rank.kill()
            for number, rank in enumerate(ranks):
                self.assertEqual(rank.returncode, 0, outputs[number])
                self.assertIn(f"rank {number} done", outputs[number])

    def test_two_processes(self):
        self.run_ranks(2)

    def test_four_processes(self):
        self.run_ranks(4)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        work(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        unittest.main()
