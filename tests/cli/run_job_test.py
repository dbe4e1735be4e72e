#!/usr/bin/env python3
"""A job under tessera run: what its ranks are told, where they listen, how it ends.

    python3 tests/cli/run_job_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset. What needs
mpirun is skipped where there is none.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from command_line import BIN, LIMIT, PROBE, call, environment
from run_on_engines import ENGINES, PROCESSES, on, run, shell, words


class RankTest(unittest.TestCase):

    @on(ENGINES)
    def test_the_ranks_add_up(self, engine):
        for ranks in (1, 3):
            done = run(engine, PROBE, ranks=ranks, options=["--no-prefix"])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(
                done.stdout, f"{ranks} ranks, sum {ranks * (ranks - 1) // 2}, "
                f"engine {engine}\n")

    @unittest.skipUnless(list(BIN.parent.glob("lib/libtessera_mpi.*")),
                         "this build has no engine mpi")
    def test_a_build_with_mpi_is_tested_with_it(self):
        self.assertIn("mpi", ENGINES, "mpirun is not in PATH")

    @on(PROCESSES)
    def test_processes_learn_rank_and_size(self, engine):
        script = ("echo $TESSERA_RANK $TESSERA_WORLD_SIZE $TESSERA_LOCAL_RANK "
                  "$TESSERA_LOCAL_SIZE $TESSERA_ENGINE $OMP_NUM_THREADS "
                  "${LD_PRELOAD-none}")
        threads = max(1, os.cpu_count() // 3)
        done = shell(engine, script)
        self.assertEqual(
            sorted(done.stdout.splitlines()),
            [f"[{r}] {r} 3 {r} 3 {engine} {threads} none" for r in range(3)])

    @on(PROCESSES)
    def test_settings_of_the_user_stay(self, engine):
        done = shell(engine, "echo $OMP_NUM_THREADS $LD_PRELOAD", ranks=1,
                     env=environment(OMP_NUM_THREADS="5", LD_PRELOAD="libc.so.6"))
        self.assertEqual(done.stdout, "[0] 5 libc.so.6\n")

    @on(ENGINES)
    def test_variables_of_another_launcher_do_not_confuse_ranks(self, engine):
        others = environment(
            RANK="5", WORLD_SIZE="8", MASTER_ADDR="192.0.2.1", MASTER_PORT="1",
            OMPI_COMM_WORLD_RANK="3", OMPI_COMM_WORLD_SIZE="4", PMIX_RANK="3",
            PMIX_NAMESPACE="none", TESSERA_NUM_RANKS="7", TESSERA_RANK="6",
            TESSERA_WORLD_SIZE="9")
        done = run(engine, PROBE, options=["--no-prefix"], env=others)
        self.assertEqual(done.stdout, f"3 ranks, sum 3, engine {engine}\n",
                         done.stderr)

    def test_half_set_variables_are_an_error_that_names_them(self):
        done = call([PROBE], env=environment(RANK="0"))
        self.assertNotEqual(done.returncode, 0)
        for word in ("RANK='0'", "WORLD_SIZE=''", "set both or neither"):
            self.assertIn(word, done.stderr)


def children_of(pid):
    """Returns a process and all that descend from it."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rsplit(")", 1)[1].split()[1])
    family = {pid}
    while more := {p for p, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def sockets_of(pid):
    links = []
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(link))
        except OSError:
            continue
    return {m.group(1) for x in links if (m := re.match(r"socket:\[(\d+)\]", x))}


def listeners():
    """Returns inode -> local address of all TCP sockets that listen."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                found[fields[9]] = fields[1].rsplit(":", 1)[0]
    return found


LOOPBACK = ("0100007F", "0000000000000000" "0000000001000000",
            "0000000000000000" "FFFF00000100007F")


class RunningJob:
    """The probe, held after its sum until the block ends."""

    def __init__(self, engine, **more):
        self.process = subprocess.Popen(
            words(engine, [PROBE, "wait"], options=["--no-prefix"]), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(**more))

    def __enter__(self):
        while self.process.stdout.readline() not in ("up\n", ""):
            pass
        return self.process

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.stdin.close()
        try:
            self.code = self.process.wait(timeout=LIMIT)
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.process.stderr.close()


class SocketTest(unittest.TestCase):

    def test_the_table_of_loopback_addresses_is_right(self):
        for family, address, inside in ((socket.AF_INET, "127.0.0.1", True),
                                        (socket.AF_INET, "0.0.0.0", False),
                                        (socket.AF_INET6, "::", False)):
            with socket.socket(family) as own:
                own.bind((address, 0))
                own.listen()
                inode = re.search(r"\d+", os.readlink(f"/proc/self/fd/{own.fileno()}"))
                self.assertEqual(listeners()[inode.group()] in LOOPBACK, inside)

    @on(PROCESSES)
    def test_processes_listen_on_loopback_only(self, engine):
        job = RunningJob(engine)
        with job as process:
            family = children_of(process.pid)
            self.assertGreater(len(family), 3)
            open_now = listeners()
            mine = {open_now[i] for p in family for i in sockets_of(p)
                    if i in open_now}
        self.assertEqual(job.code, 0)
        self.assertTrue(mine)  # else the test looked at the wrong thing
        self.assertEqual(mine - set(LOOPBACK), set())

    def test_threads_open_no_socket(self):
        job = RunningJob("threads")
        with job as process:
            family = children_of(process.pid)
            self.assertEqual(len(family), 2)
            self.assertEqual({s for p in family for s in sockets_of(p)}, set())
        self.assertEqual(job.code, 0)


def is_alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


class EndTest(unittest.TestCase):

    @on(PROCESSES)
    def test_the_folder_of_the_job_is_private_and_goes(self, engine):
        with tempfile.TemporaryDirectory() as where:
            with RunningJob(engine, TMPDIR=where):
                mine = [p for p in pathlib.Path(where).iterdir()
                        if p.name.startswith("tessera.")]
                self.assertEqual(len(mine), 1)
                self.assertEqual(mine[0].stat().st_mode & 0o777, 0o700)
            self.assertEqual([p.name for p in pathlib.Path(where).iterdir()
                              if p.name.startswith("tessera.")], [])

    @on(PROCESSES)
    def test_signals_reach_every_rank(self, engine):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            with tempfile.TemporaryDirectory() as where:
                script = (f'trap "echo got; exit 9" {number.name[3:]}; echo up; '
                          "while :; do sleep 0.05; done")
                process = subprocess.Popen(
                    words(engine, ["sh", "-c", script]), stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL, text=True,
                    env=environment(TMPDIR=where))
                up = [process.stdout.readline() for _ in range(3)]
                self.assertEqual(sorted(up), [f"[{r}] up\n" for r in range(3)])
                process.send_signal(number)
                rest = process.stdout.read().splitlines()
                process.stdout.close()
                self.assertEqual(sorted(rest), [f"[{r}] got" for r in range(3)])
                self.assertEqual(process.wait(timeout=LIMIT), 9)
                self.assertEqual([p.name for p in pathlib.Path(where).iterdir()
                                  if p.name.startswith("tessera.")], [])

    @on(PROCESSES)
    def test_ranks_end_with_the_launcher(self, engine):
        with tempfile.TemporaryDirectory() as where:
            process = subprocess.Popen(
                words(engine, ["sh", "-c", "echo up; exec sleep 60"]),
                stdout=subprocess.PIPE, text=True, env=environment(TMPDIR=where))
            for _ in range(3):
                process.stdout.readline()
            family = children_of(process.pid) - {process.pid}
            process.kill()
            process.wait(timeout=LIMIT)
            process.stdout.close()
            limit = time.monotonic() + 20
            alive = family
            while alive and time.monotonic() < limit:
                time.sleep(0.1)
                alive = {p for p in family if is_alive(p)}
            self.assertEqual(alive, set())

if __name__ == "__main__":
    unittest.main(verbosity=1)
