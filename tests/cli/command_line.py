"""How tests run commands: where they are, in which environment, with their output
caught or on a terminal."""

import os
import pathlib
import pty
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "bin"))
TESSERA = str(BIN / "tessera")
PROBE = str(BIN / "cli_run_probe")
LIMIT = 120  # seconds for any command
# What launchers, locales and users set would change what a command does.
PREFIXES = ("TESSERA_", "OMPI_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC", "LC_",
            "LANG")
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
         "OMP_NUM_THREADS", "NO_COLOR")
KEPT = ("OMPI_MCA_mca_base_env_list",)  # how a sanitizer's build runs under MPI


def environment(locale="C.UTF-8", **more):
    """Returns the environment of a user who has set nothing but `more`."""
    env = {k: v for k, v in os.environ.items()
           if k in KEPT or not k.startswith(PREFIXES) and k not in NAMES}
    return {**env, "LC_ALL": locale, **more}


def call(command, env=None, limit=LIMIT, **more):
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8",
                          timeout=limit, env=env or environment(), **more)


def tessera(*args, locale="C.UTF-8", **more):
    return call([TESSERA, *args], environment(locale), **more)


def on_terminal(command, errors=False, **variables):
    """Returns what a command that must end well shows on a terminal; with `errors` its
    standard error too."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=side,
        stderr=side if errors else None,
        env=environment(TERM="xterm-256color", **variables))
    os.close(side)
    output = b""
    try:
        while piece := os.read(main, 4096):
            output += piece
    except OSError:  # the other end is closed
        pass
    os.close(main)
    if process.wait(timeout=LIMIT) != 0:
        raise AssertionError(f"{command} on a terminal: {process.returncode}")
    return output.decode("utf-8")
