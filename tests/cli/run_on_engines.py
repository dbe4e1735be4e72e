"""How tests start programs by tessera run, once per engine that is there."""

import functools
import shutil

from command_line import TESSERA, call

MPIRUN = shutil.which("mpirun")
PROCESSES = ["gloo"] + (["mpi"] if MPIRUN else [])
ENGINES = ["threads"] + PROCESSES


def words(engine, program, ranks=3, options=()):
    return [TESSERA, "run", "-n", str(ranks), "--engine", engine, *options, "--",
            *program]


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
