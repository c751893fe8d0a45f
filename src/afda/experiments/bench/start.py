"""Seconds until the first response: of `afda --help`, and of `afda train` to its first step."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from afda.errors import RunFailed
from afda.experiments.bench.timing import Row, measure_in_turns, summarise

COMMAND = (sys.executable, "-m", "afda")


def show_help() -> None:
    """Run `afda --help`."""
    subprocess.run([*COMMAND, "--help"], stdout=subprocess.DEVNULL, check=True)


def run_first_step() -> None:
    """Run `afda train digits` until its log has a line, which is that of the first step."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run" / "log.jsonl"
        options = ["--steps", "100", "--quiet", "--no-test", "--out", str(log.parent)]
        with subprocess.Popen([*COMMAND, "train", "digits", *options]) as process:
            while not (logged := log.exists() and log.stat().st_size) and process.poll() is None:
                time.sleep(0.005)
            process.kill()
        if not logged:
            raise RunFailed("`afda train digits` ended before its first step; run it to see why.")


def measure_seconds(name: str, run: Callable[[], None]) -> Iterator[Row]:
    """Measure the seconds of one piece of work."""
    yield summarise(name, measure_in_turns(work=run)["work"])
