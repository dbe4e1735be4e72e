#!/usr/bin/env python3
"""Starts a job by hand, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

Checks that processes listen at loopback only, that a rank which does not start
is named at the deadline, and that what went wrong is said.

  TESSERA_BIN=build/bin tests/engines/gloo_job_test.py
"""
import os
import pathlib
import socket
import subprocess
import time
import unittest

LIMIT_S = 60
PROBE = os.path.join(os.environ["TESSERA_BIN"], "gloo_job_probe")
LISTEN = "0A"  # in /proc/net/tcp
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listeners(pids):
    """Returns the local addresses at which the processes listen."""
    inodes = set()
    for pid in pids:
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(fd)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in inodes:
                found.append(fields[1].split(":")[0])
    return found


class GlooJobTest(unittest.TestCase):
    def start(self, rank, size, port, *args, **variables):
        names = {"RANK": str(rank), "WORLD_SIZE": str(size),
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                 "OMP_NUM_THREADS": "1", **variables}
        process = subprocess.Popen(
            [PROBE, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, **names})
        self.addCleanup(self.stop, process)
        return process

    def stop(self, process):
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()

    def end(self, process):
        return process.communicate(timeout=LIMIT_S)

    def test_processes_listen_at_loopback_only_and_print_nothing_else(self):
        port = free_port()
        ranks = [self.start(r, 2, port, "60000") for r in range(2)]
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "sum 3 of 2\n")
        found = listeners([rank.pid for rank in ranks])
        self.assertGreaterEqual(len(found), 3)  # a store, and Gloo on each
        self.assertEqual(set(found) - LOOPBACK, set())
        # Rank 0, which serves the store, is asked to end first: it stays for
        # the other one.
        ranks[0].stdin.close()
        with self.assertRaises(subprocess.TimeoutExpired):
            ranks[0].wait(timeout=0.5)
        ranks[1].stdin.close()
        for rank in ranks:
            self.assertEqual(rank.wait(timeout=LIMIT_S), 0)
            self.assertEqual(rank.stderr.read(), "")

    def test_a_rank_that_does_not_start_is_named_at_the_deadline(self):
        port = free_port()
        start = time.monotonic()
        ranks = [self.start(r, 4, port, "1500") for r in (0, 1, 3)]
        for rank in ranks:
            _, error = self.end(rank)
            self.assertEqual(rank.returncode, 3, error)
            self.assertIn("all_reduce", error)
            self.assertIn("deadline of 1500 ms; waited for rank 2;", error)
        self.assertLess(time.monotonic() - start, 24)

    def test_a_rank_0_that_does_not_start_is_named_at_the_deadline(self):
        port = free_port()
        start = time.monotonic()
        rank = self.start(1, 2, port, "1500")
        _, error = self.end(rank)
        self.assertEqual(rank.returncode, 3)
        self.assertIn(f"rank 0 did not answer at 127.0.0.1:{port} within the "
                      "deadline of 1500 ms", error)
        self.assertLess(time.monotonic() - start, 15)

    def test_a_port_that_is_taken_is_an_error(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            rank = self.start(0, 2, taken.getsockname()[1], "1500")
            _, error = self.end(rank)
        self.assertEqual(rank.returncode, 3)
        self.assertIn("rank 0 cannot listen at 127.0.0.1", error)
        self.assertIn("set MASTER_PORT to a free port", error)


if __name__ == "__main__":
    unittest.main()
