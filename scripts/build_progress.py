#!/usr/bin/env python3
"""Runs ninja where no terminal shows its line, and says from time to time how far it is.

  scripts/build_progress.py ninja ARGUMENTS...

Prints about every 20 s `build: 120 of 345 steps, 2:10` and such a line at the end
(TESSERA_PROGRESS_SECONDS says how often). What the steps print, warnings and errors,
passes at once as it is; ninja's exit status is kept.
"""
import os
import re
import selectors
import signal
import subprocess
import sys
import time

SECONDS = float(os.environ.get("TESSERA_PROGRESS_SECONDS", "20"))
# A byte that no compiler prints marks the lines that ninja prints per step.
MARK = "\x1e"
STEP = re.compile(rf"{MARK}(\d+)/(\d+) .*\n?".encode())
NOT_SHOWN = (b"ninja: Entering directory", b"ninja: no work to do")


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Progress:
    def __init__(self):
        self.begin = self.told = time.monotonic()
        self.steps = None  # (done, all)

    def tell(self):
        self.told = time.monotonic()
        done = "{} of {} steps".format(*self.steps) if self.steps else "0 steps"
        print(f"build: {done}, {clock(self.told - self.begin)}", flush=True)

    def remaining(self):
        return max(0, self.told + SECONDS - time.monotonic())

    def take(self, line):
        """Keeps the figures of a line and passes on what ninja did not say itself."""
        step = STEP.search(line)
        if step:
            self.steps = int(step[1]), int(step[2])
            line = STEP.sub(b"", line)
        if line and not line.startswith(NOT_SHOWN):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def lines(pipe, progress):
    """Yields whole lines, and lets `progress` tell while there are none."""
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ)
    rest = b""
    while True:
        if selector.select(progress.remaining()):
            read = os.read(pipe.fileno(), 65536)
            if not read:
                break
            *whole, rest = (rest + read).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if progress.remaining() == 0:
            progress.tell()
    if rest:
        yield rest


def main():
    ninja = subprocess.Popen(
        sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"NINJA_STATUS": MARK + "%f/%t "})
    # Ctrl-C reaches ninja too, which ends its steps and says so.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: ninja.terminate())
    progress = Progress()
    for line in lines(ninja.stdout, progress):
        progress.take(line)
    status = ninja.wait()
    progress.tell()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
