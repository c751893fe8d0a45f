"""The processes of a training: those of `afda train --processes`, started with the same command line, or torchrun's."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from afda import processes
from afda.errors import RunFailed, UserError

MEETING = "AFDA_MEETING"
"""The variable that names the file by which the processes of `--processes` find each other."""
PATIENCE = 2.0
"""Seconds for this process to notice by itself that another has ended; then it is ended too."""


@dataclass(frozen=True)
class Place:
    """Which of how many processes this one is."""

    rank: int = 0
    count: int = 1
    meeting: str | None = None
    starts_others: bool = False

    @property
    def option(self) -> str:
        """What of the command line starts as many again."""
        return f" --processes {self.count}" if self.starts_others else ""

    def threads(self, asked: int | None) -> int | None:
        """CPU threads of this process: those asked for, or its share; torchrun's processes have what it gives them."""
        return max(1, torch.get_num_threads() // self.count) if asked is None and self.starts_others else asked


def place(asked: int | None, timed: bool = False) -> Place:
    """This process's place: as torchrun or the first process says, or the first of as many as are asked for."""
    count = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    meeting = os.environ.get(MEETING)
    if timed and max(count, asked or 1) > 1:
        raise UserError("--minutes goes by the pace of one process; with several, give --steps instead.")
    if count > 1:
        if asked is not None and meeting is None:
            raise UserError("torchrun has started the processes already; leave out --processes.")
        return Place(int(os.environ["RANK"]), count, meeting)
    return Place(count=asked, starts_others=True) if asked is not None and asked > 1 else Place()


@contextmanager
def joined(place: Place, device: torch.device, again: str) -> Iterator[None]:
    """Train as one of several processes, or alone. `again` is the command that continues the run if one is lost."""
    if place.count == 1:
        yield
    elif place.starts_others:
        with leading(place.count, device, again):
            yield
    else:
        if place.meeting is not None:
            threading.Thread(target=end_with_the_first, daemon=True).start()
        with explained(f"Another process of this training has ended; continue with: {again}"):
            processes.join(place.rank, place.count, device, place.meeting)
            yield
        processes.leave()


@contextmanager
def explained(sentence: str) -> Iterator[None]:
    try:
        yield
    except processes.ProcessLost:
        raise RunFailed(sentence) from None


@contextmanager
def leading(count: int, device: torch.device, again: str) -> Iterator[None]:
    """Start the other processes, be the first among them, and end them."""
    folder = Path(tempfile.mkdtemp(prefix="afda-"))
    others = [Other(rank, count, folder) for rank in range(1, count)]
    over = threading.Event()

    def end_without_them() -> None:
        """This process may be waiting for a lost one inside a library that does not tell it."""
        while not over.wait(0.1):
            if any(other.failed for other in others) and not over.wait(PATIENCE):
                show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
                print(f"{show_cursor}afda: {loss(others, again)}", file=sys.stderr, flush=True)
                shutil.rmtree(folder, ignore_errors=True)
                os._exit(1)

    threading.Thread(target=end_without_them, daemon=True).start()
    try:
        processes.join(0, count, device, str(folder / "meeting"))
        yield
    except processes.ProcessLost:
        raise RunFailed(loss(others, again)) from None
    finally:
        processes.leave()
        over.set()
        for other in others:
            other.end()
        shutil.rmtree(folder, ignore_errors=True)


class Other:
    """A process that runs the same command as this one and lives no longer."""

    def __init__(self, rank: int, count: int, folder: Path) -> None:
        self.rank, self.complaint = rank, folder / f"{rank}.txt"
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, MEETING: folder / "meeting"}
        with open(self.complaint, "wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "afda", *sys.argv[1:], "--threads", str(torch.get_num_threads())],
                env={**os.environ, **{name: str(value) for name, value in place.items()}},
                stdin=subprocess.PIPE,  # its end tells the other that this process is gone, however it went
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )

    @property
    def failed(self) -> bool:
        return self.process.poll() not in (None, 0)

    def fate(self) -> str:
        code = self.process.returncode
        if code < 0:
            return f"was killed by signal {-code}"
        lines = self.complaint.read_text(errors="replace").strip().splitlines()
        return f"failed ({lines[-1].removeprefix('afda: ').removesuffix('.')})" if lines else f"ended with code {code}"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def loss(others: list[Other], again: str) -> str:
    """What happened to the other processes, in a sentence."""
    waited = time.monotonic() + PATIENCE
    while not any(other.failed for other in others) and time.monotonic() < waited:
        time.sleep(0.05)  # its connection may end before it does
    fates = [f"process {other.rank} {other.fate()}" for other in others if other.failed]
    return f"Of {len(others) + 1} processes {', '.join(fates) or 'one was lost'}; continue with: {again}"


def end_with_the_first() -> None:
    """Wait for the first process to go."""
    os.read(0, 1)  # not through sys.stdin, whose lock an ending interpreter wants
    os._exit(1)
