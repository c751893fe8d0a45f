"""How long a user waits for the first answer: `afda --help`, and the first step of `afda train`."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from afda.bench.timing import Row, in_turns, row
from afda.errors import RunFailed

COMMAND = (sys.executable, "-m", "afda")


def helped() -> None:
    subprocess.run([*COMMAND, "--help"], stdout=subprocess.DEVNULL, check=True)


def first_step() -> None:
    """Until the log has its first line, which is that of the first step."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run" / "log.jsonl"
        options = ["--steps", "100", "--quiet", "--no-test", "--out", str(log.parent)]
        with subprocess.Popen([*COMMAND, "train", "digits", *options]) as process:
            while not (begun := log.exists() and log.stat().st_size) and process.poll() is None:
                time.sleep(0.005)
            process.kill()
        if not begun:
            raise RunFailed("`afda train digits` ended before its first step; run it to see why.")


def seconds(name: str, wait: Callable[[], None]) -> Iterator[Row]:
    yield row(name, in_turns(it=wait)["it"])
