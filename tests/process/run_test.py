#!/usr/bin/env python3
"""One program under every launcher: tessera run with each engine, mpirun, torchrun.

    python3 tests/process/run_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset. What needs
mpirun or torchrun is skipped, with a message, where they are not there.
"""

import functools
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "bin"))
TESSERA = str(BIN / "tessera")
PROBE = str(BIN / "cli_run_probe")
EXAMPLES = [str(BIN / "01_layouts"), str(BIN / "06_sharded_tensor")]
EVERY_LAUNCHER = str(BIN / "05_every_launcher")
LIMIT = 90  # seconds for any command
TRAIN_LIMIT = 300  # starts 18 ranks and PyTorch in 6 processes
MPIRUN = shutil.which("mpirun")
TORCHRUN = next((p for p in (str(ROOT / ".venv/bin/torchrun"), shutil.which("torchrun"))
                 if p and os.path.exists(p)), None)
PROCESSES = ["gloo"] + (["mpi"] if MPIRUN else [])
ENGINES = ["threads"] + PROCESSES
ENGINE_OF = {"mpirun": "mpi", "torchrun": "gloo"}  # of other launchers
LAUNCHERS = ("TESSERA_", "OMPI_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC")
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
         "OMP_NUM_THREADS")


def environment(**more):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(LAUNCHERS) and k not in NAMES}
    return {**env, "LC_ALL": "C.UTF-8", **more}


def words(engine, program, ranks=3, options=()):
    return [TESSERA, "run", "-n", str(ranks), "--engine", engine, *options, "--",
            *program]


def call(command, env=None, limit=LIMIT, **more):
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8",
                          timeout=limit, env=env or environment(), **more)


def run(engine, *program, ranks=3, options=(), **more):
    return call(words(engine, program, ranks, options), **more)


def shell(engine, script, **more):
    return run(engine, "sh", "-c", script, **more)


def on(engines):
    """Runs a test once per engine."""
    def decorate(test):
        @functools.wraps(test)
        def each(self):
            for engine in engines:
                with self.subTest(engine=engine):
                    test(self, engine)
        return each
    return decorate


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


class OutputTest(unittest.TestCase):

    @on(PROCESSES)
    def test_lines_come_with_their_rank(self, engine):
        script = 'echo out $TESSERA_RANK; echo err $TESSERA_RANK >&2'
        done = shell(engine, script)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         [f"[{r}] out {r}" for r in range(3)])
        self.assertEqual(sorted(done.stderr.splitlines()),
                         [f"[{r}] err {r}" for r in range(3)])

    @on(PROCESSES)
    def test_lines_are_whole_however_they_are_written(self, engine):
        script = ("i=0; while [ $i -lt 60 ]; do printf 'a%s' $TESSERA_RANK; "
                  "printf 'b%s' $i; printf 'c\\n'; i=$((i + 1)); done; printf end")
        lines = shell(engine, script).stdout.splitlines()
        for rank in range(3):
            mine = [x for x in lines if x.startswith(f"[{rank}] ")]
            self.assertEqual(
                mine, [f"[{rank}] a{rank}b{i}c" for i in range(60)] +
                [f"[{rank}] end"])
        self.assertEqual(len(lines), 3 * 61)

    @on(PROCESSES)
    def test_large_output_arrives_complete(self, engine):
        done = shell(engine, "seq 1 40000", ranks=2, options=["--no-prefix"])
        self.assertEqual(len(done.stdout.splitlines()), 80000)

    @on(PROCESSES)
    def test_colour_only_on_a_terminal(self, engine):
        self.assertNotIn("\x1b", shell(engine, "echo hi").stdout)
        self.assertIn("\x1b[", self.on_terminal(engine))
        self.assertNotIn("\x1b[", self.on_terminal(engine, NO_COLOR="1"))

    def on_terminal(self, engine, **more):
        main, side = pty.openpty()
        env = environment(TERM="xterm-256color", **more)
        process = subprocess.Popen(words(engine, ["echo", "hi"]), stdout=side,
                                   stdin=subprocess.DEVNULL, env=env)
        os.close(side)
        output = b""
        try:
            while piece := os.read(main, 4096):
                output += piece
        except OSError:  # the other end is closed
            pass
        os.close(main)
        process.wait(timeout=LIMIT)
        return output.decode("utf-8")

    @on(PROCESSES)
    def test_input_goes_to_rank_0(self, engine):
        done = run(engine, "cat", input="through\n")
        self.assertEqual(done.stdout, "[0] through\n")

    @on(PROCESSES)
    def test_ranks_whose_output_nobody_reads_end(self, engine):
        process = subprocess.Popen(words(engine, ["yes"]), stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=environment())
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=30), 128 + signal.SIGPIPE)

    @on(PROCESSES)
    def test_a_reader_that_stalls_does_not_stop_the_launcher(self, engine):
        with tempfile.TemporaryDirectory() as where:
            # Both streams into one pipe, which stays full.
            process = subprocess.Popen(
                words(engine, ["sh", "-c", "yes"]), stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env=environment(TMPDIR=where))
            process.stdout.readline()
            time.sleep(1)
            process.send_signal(signal.SIGTERM)
            try:
                self.assertEqual(process.wait(timeout=15), 128 + signal.SIGTERM)
            finally:
                process.kill()
                process.stdout.close()
            self.assertEqual(list(pathlib.Path(where).glob("tessera.*")), [])

    @on(PROCESSES)
    def test_ranks_are_ended_while_the_reader_stalls(self, engine):
        with tempfile.TemporaryDirectory() as where:
            script = (f"if [ $TESSERA_RANK = 1 ]; then sleep 1; exit 5; fi; "
                      f"trap 'touch {where}/asked.$TESSERA_RANK; exit 0' TERM; "
                      "yes & while :; do sleep 0.1; done")
            process = subprocess.Popen(
                words(engine, ["sh", "-c", script]), stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env=environment())
            limit = time.monotonic() + 20
            asked = []
            while len(asked) < 2 and time.monotonic() < limit:
                time.sleep(0.1)
                asked = list(pathlib.Path(where).glob("asked.*"))
            process.stdout.close()  # now nobody reads
            self.assertEqual(len(asked), 2)
            self.assertEqual(process.wait(timeout=LIMIT), 5)

    @on(PROCESSES)
    def test_a_slow_reader_gets_all(self, engine):
        process = subprocess.Popen(
            words(engine, ["seq", "1", "60000"], ranks=1, options=["--no-prefix"]),
            stdout=subprocess.PIPE, env=environment())
        time.sleep(2)
        text = process.stdout.read()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=LIMIT), 0)
        self.assertEqual([int(x) for x in text.split()], list(range(1, 60001)))

    @on(ENGINES)
    def test_words_of_the_program_arrive_as_they_are(self, engine):
        odd = [":", "", " ", "'\"", "a\nb", "--", "-n", "\\"]
        done = run(engine, "sh", "-c", 'printf "<%s>" "$@"; echo', "sh", *odd,
                   ranks=1, options=["--no-prefix"])
        self.assertEqual(done.stdout, "".join(f"<{x}>" for x in odd) + "\n",
                         done.stderr)


class FailureTest(unittest.TestCase):

    @on(PROCESSES)
    def test_a_rank_that_throws_is_named_by_all(self, engine):
        done = run(engine, PROBE, "1")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("[1] planted failure", done.stderr)
        for survivor in (0, 2):
            self.assertRegex(done.stderr,
                             rf"\[{survivor}\] .*rank 1 failed: planted failure")
        self.assertRegex(done.stderr,
                         r"tessera run: ranks? [012 ]*exited with status 3")

    @on(PROCESSES)
    def test_a_rank_that_exits_is_the_exit_code(self, engine):
        done = run(engine, PROBE, "exit", "1")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("rank 1 exited with status 7", done.stderr)

    @on(PROCESSES)
    def test_a_rank_that_is_killed_is_named(self, engine):
        begin = time.monotonic()
        done = run(engine, PROBE, "kill", "1")
        self.assertEqual(done.returncode, 128 + signal.SIGKILL, done.stderr)
        self.assertIn(
            "tessera run: rank 1 was ended by signal 9 (Killed); ending the others",
            done.stderr)
        self.assertLess(time.monotonic() - begin, 20)
        if engine == "gloo":
            for survivor in (0, 2):
                self.assertRegex(done.stderr, rf"\[{survivor}\] .*rank 1")

    @on(PROCESSES)
    def test_others_that_go_on_are_ended(self, engine):
        script = ('trap "echo asked; exit 0" TERM; [ $TESSERA_RANK = 1 ] && exit 5; '
                  "while :; do sleep 0.1; done")
        begin = time.monotonic()
        done = shell(engine, script)
        self.assertEqual(done.returncode, 5)
        self.assertEqual(done.stdout.count("asked"), 2)
        self.assertEqual(done.stderr, "tessera run: rank 1 exited with status 5; "
                                      "ending the others\n")
        self.assertLess(time.monotonic() - begin, 20)

    @on(PROCESSES)
    def test_others_that_do_not_want_to_end_are_killed(self, engine):
        script = ('trap "" TERM; [ $TESSERA_RANK = 0 ] && kill -9 $$; '
                  "while :; do sleep 0.1; done")
        begin = time.monotonic()
        done = shell(engine, script, ranks=2)
        self.assertEqual(done.returncode, 137)
        self.assertLess(time.monotonic() - begin, 20)

    @on(ENGINES)
    def test_what_cannot_be_started_is_said_once(self, engine):
        with tempfile.NamedTemporaryFile("w") as plain:
            for program, code in (("/no/such", 127), (plain.name, 126)):
                done = run(engine, program)
                self.assertEqual(done.returncode, code)
                self.assertEqual(done.stderr.count("cannot execute"), 1)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_without_mpirun_the_message_says_what_to_install(self):
        done = run("mpi", "true", env=environment(PATH="/nonexistent"))
        self.assertEqual(done.returncode, 2)
        for word in ("mpirun", "openmpi-bin"):
            self.assertIn(word, done.stderr)

    @unittest.skipUnless(MPIRUN, "mpirun is not installed")
    def test_a_folder_that_cannot_be_preloaded_from_is_refused(self):
        with tempfile.TemporaryDirectory(prefix="a b") as where:
            done = run("mpi", "true", env=environment(TMPDIR=where))
        self.assertEqual(done.returncode, 2)
        self.assertIn("TMPDIR", done.stderr)

    @unittest.skipUnless(MPIRUN, "mpirun is not installed")
    def test_an_end_of_mpirun_just_after_a_failure_hides_neither(self):
        with tempfile.TemporaryDirectory() as where:
            script = (f"cd {where}; if [ $TESSERA_RANK = 0 ]; then echo $$ > new; "
                      "while [ ! -e up ]; do sleep 0.01; done; mv new pid; exit 5; fi; "
                      "touch up; while [ ! -e pid ]; do sleep 0.01; done; "
                      "while kill -0 $(cat pid) 2>&-; do sleep 0.01; done; sleep 0.1; "
                      "read -r x x x mpirun x < /proc/$PPID/stat; kill -9 $mpirun; "
                      "sleep 20")
            done = shell("mpi", script, ranks=2)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("tessera run: rank 0 exited with status 5", done.stderr)
        self.assertIn("mpirun ended with status 137 before the ranks", done.stderr)

    def test_too_many_processes_are_refused(self):
        done = run("gloo", "true", ranks=100000)
        self.assertEqual(done.returncode, 2)
        self.assertIn("at most", done.stderr)


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
        import socket
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


def is_alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


class SameProgramTest(unittest.TestCase):
    maxDiff = None

    def launchers(self):
        for engine in ENGINES:
            yield engine, words(engine, [], 4, ["--no-prefix"])
        if MPIRUN:
            root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
            # MPICH's has neither option.
            open_mpi = "Open MPI" in call([MPIRUN, "--version"]).stdout
            yield "mpirun", [MPIRUN, *(["--oversubscribe", *root] if open_mpi else []),
                             "-n", "4"]
        if TORCHRUN:
            yield "torchrun", [TORCHRUN, "--no-python", "--nproc-per-node", "4"]

    def outputs(self, *program):
        for name, launcher in self.launchers():
            done = call([*launcher, *program])
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
            yield name, done.stdout

    def test_examples_print_the_same_under_every_launcher(self):
        for example in EXAMPLES:
            with self.subTest(example):
                printed = dict(self.outputs(example))
                self.assertIn("rank 3 holds", printed["threads"])
                for name, text in printed.items():
                    self.assertEqual(text, printed["threads"], name)

    def test_the_example_for_launchers_trains_alike_under_each(self):
        engines = {"mpirun": "mpi", "torchrun": "gloo"}
        results = {}
        for name, text in self.outputs(EVERY_LAUNCHER):
            first, *results[name] = text.splitlines()
            self.assertEqual(first, f"4 ranks, engine {engines.get(name, name)}")
        for rank, line in enumerate(results["threads"][:-1]):
            self.assertRegex(line, fr"^rank {rank} holds \[10, 8\] of .*, sum -?\d")
        self.assertEqual(len(results["threads"]), 4 + 1)
        for name, result in results.items():
            self.assertEqual(result, results["threads"], name)
        alone = call([EVERY_LAUNCHER]).stdout.splitlines()
        self.assertRegex(alone[-1], r"^checksum \d+\.\d{9}$")
        self.assertEqual(alone[-1], results["threads"][-1])

    def test_the_demo_trains_alike_under_every_launcher(self):
        results = {}
        for name, text in self.outputs(TESSERA, "demo", "--steps", "3", "--json"):
            report = json.loads(text)
            self.assertTrue(report["equal"], name)
            results[name] = {k: v for k, v in report.items()
                             if "second" not in k and k != "engine"}
            self.assertEqual(report["engine"], ENGINE_OF.get(name, name))
        self.assertEqual(results["threads"]["ranks"], 4)
        for name, result in results.items():
            self.assertEqual(result, results["threads"], name)

    @unittest.skipUnless((ROOT / ".venv").exists(), "there is no .venv")
    def test_torchrun_of_the_venv_is_tested(self):
        self.assertIn("torchrun", dict(self.launchers()), "not in .venv/bin")

    def test_the_demo_takes_the_number_of_threads_alone(self):
        done = call([TESSERA, "demo", "--steps", "2", "--json"],
                    env=environment(TESSERA_NUM_RANKS="3"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["ranks"], 3)


class DoctorTest(unittest.TestCase):

    def test_engines_are_listed_with_what_they_did(self):
        report = json.loads(call([TESSERA, "doctor", "--json"]).stdout)
        checks = {c["name"]: c for c in report["checks"]}
        for engine in ENGINES:
            self.assertEqual(checks[f"engine {engine}"]["status"], "ok",
                             checks[f"engine {engine}"])
            self.assertIn("added 1 and 2", checks[f"engine {engine}"]["found"])


class BenchTrainTest(unittest.TestCase):
    """The form of the table and the equality of the losses; no speeds."""

    def test_every_engine_trains_the_model_of_pytorch(self):
        done = call([TESSERA, "bench", "train", "--rounds", "1", "--steps", "2",
                     "--warm-up", "4", "--json"], limit=TRAIN_LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        report = json.loads(done.stdout)
        self.assertEqual(set(report["left_out"]), {"threads", "mpi", "gloo"} -
                         set(ENGINES))
        self.assertEqual([(m["mesh"], m["ranks"]) for m in report["meshes"]],
                         [("tp=2", 2), ("dp=2,tp=2", 4)])
        tokens = report["model"]["batch"] * report["model"]["length"]
        compared = "not found" not in report["pytorch"]
        for mesh in report["meshes"]:
            self.assertEqual({e["engine"] for e in mesh["engines"]}, set(ENGINES))
            for engine in mesh["engines"]:
                seconds, = engine["step_seconds"]
                self.assertAlmostEqual(engine["tokens_per_second"], tokens / seconds)
                if compared:
                    self.assertAlmostEqual(
                        engine["ratio"], mesh["pytorch_step_seconds"][0] / seconds)
                    self.assertLess(engine["largest_loss_difference"], 1e-4)
            if compared:
                losses = mesh["pytorch_losses"]
                self.assertEqual(len(losses), 4)
                self.assertLess(losses[-1], losses[0])
        self.assertTrue(report["same_model"])

    def test_the_table_names_meshes_losses_and_targets(self):
        done = call([TESSERA, "bench", "train", "--ranks", "2", "--rounds", "1",
                     "--steps", "1", "--warm-up", "2", "--engine", "threads"],
                    limit=TRAIN_LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertRegex(done.stdout, r"tp=2 +threads +[\d.]+ +\d+")
        if "not found" not in done.stdout:
            self.assertIn("the same model", done.stdout)
            self.assertRegex(done.stdout,
                             r"\n(missed:\n  tp=2 on threads|all 1 target met)")

    def test_medians_are_judged_and_other_losses_are_no_comparison(self):
        with tempfile.TemporaryDirectory() as where:
            # Stands for a slow PyTorch whose model is another one.
            python = pathlib.Path(where) / "python"
            python.write_text(
                '#!/bin/sh\n[ "$#" -gt 2 ] || exit 0\n'
                'echo \'{"torch": "2.0", "losses": [1.0, 1.0]}\'\n'
                'while read -r round; do echo 500; done\n')
            python.chmod(0o755)
            done = call([TESSERA, "bench", "train", "--ranks", "2", "--rounds", "3",
                         "--steps", "1", "--warm-up", "2", "--engine", "threads",
                         "--json", "--python", str(python)])
        self.assertEqual(done.returncode, 1, done.stdout)
        report = json.loads(done.stdout)
        self.assertFalse(report["same_model"])
        self.assertEqual(report["missed"], [])
        row, = report["meshes"][0]["engines"]
        self.assertAlmostEqual(row["ratio"], 500 / sorted(row["step_seconds"])[1])
        self.assertGreater(row["largest_loss_difference"], 1)

    def test_without_pytorch_our_own_figures_remain(self):
        done = call([TESSERA, "bench", "train", "--ranks", "2", "--rounds", "1",
                     "--steps", "1", "--warm-up", "1", "--engine", "threads",
                     "--python", "/no/such"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not found; --python names one", done.stdout)
        self.assertIn("no target was judged", done.stdout)
        self.assertRegex(done.stdout, r"tp=2 +threads +[\d.]+ +\d+")


class BenchTest(unittest.TestCase):
    COLLECTIVES = {"all_gather", "all_to_all", "all_reduce", "reduce_scatter",
                   "broadcast"}

    def test_every_engine_is_measured(self):
        done = call([TESSERA, "bench", "comm", "--ranks", "2", "--mib", "1",
                     "--rounds", "1", "--repeats", "1", "--json"])
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(set(report["left_out"]), {"threads", "mpi", "gloo"} -
                         set(ENGINES))
        rows = report["collectives"]
        self.assertEqual(
            {(r["size"], r["collective"]) for r in rows},
            {(s, c) for s in ("large", "small") for c in self.COLLECTIVES} |
            {("small", "barrier")})
        compared = "not found" not in report["pytorch"]
        for row in rows:
            for engine in ENGINES:
                self.assertEqual(len(row["seconds"][engine]), 1)
                self.assertGreater(row["seconds"][engine][0], 0)
                if compared:
                    self.assertGreater(row["ratio"][engine], 0)

    def test_an_engine_that_fails_is_not_left_out(self):
        done = call([TESSERA, "bench", "comm", "--ranks", "2", "--mib", "1",
                     "--rounds", "1", "--engine", "gloo", "--python", "/no/such"],
                    env=environment(TESSERA_INTERFACE="none0"))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("gloo on 2 ranks ended with exit code 1", done.stderr)

    def test_a_signal_leaves_no_folder(self):
        with tempfile.TemporaryDirectory() as where:
            process = subprocess.Popen(
                [TESSERA, "bench", "comm", "--ranks", "2", "--mib", "64",
                 "--repeats", "1000", "--engine", "gloo", "--python", "/no/such"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=environment(TMPDIR=where))
            folders = []
            limit = time.monotonic() + 20
            while len(folders) < 2 and time.monotonic() < limit:
                time.sleep(0.1)
                folders = list(pathlib.Path(where).glob("tessera.*"))
            self.assertEqual(len(folders), 2)  # of the bench and of the job
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=40), -signal.SIGTERM)
            self.assertEqual(list(pathlib.Path(where).glob("tessera.*")), [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
