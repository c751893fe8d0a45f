"""Launching the processes of a training: the workers of `afda train --processes`, or those that torchrun started.

The process that the user starts has rank 0. It starts a worker for every other rank with a command line that makes the
same request, and ends them when it ends.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from afda.errors import RunFailed, UserError
from afda.machine.group import ALONE, Group, ProcessLost, join_group, leave_group

RENDEZVOUS = "AFDA_RENDEZVOUS"
"""Environment variable with the path of the file through which the processes of `--processes` find each other."""
GRACE_SECONDS = 2.0
"""Time for a process to notice by itself that another one has ended, before it is ended too."""


@dataclass(frozen=True)
class Role:
    """The rank of this process, the number of processes, and who starts them."""

    rank: int = 0
    count: int = 1
    rendezvous: str | None = None
    """The file through which the processes find each other; None under torchrun and for a single process."""
    starts_workers: bool = False

    @property
    def command_option(self) -> str:
        """The option that starts the same number of processes again, or nothing under torchrun."""
        return f" --processes {self.count}" if self.starts_workers else ""

    def choose_threads(self, requested: int | None) -> int | None:
        """Return the CPU threads of this process: the requested number, or its share of the default.

        None leaves the number to torch and torchrun.
        """
        if requested is None and self.starts_workers:
            return max(1, torch.get_num_threads() // self.count)
        return requested


def detect_role(requested: int | None, timed: bool = False) -> Role:
    """Return the role of this process, given the value of `--processes` and whether `--minutes` limits the training.

    Raises a UserError if the options contradict each other or torchrun.
    """
    count = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    rendezvous = os.environ.get(RENDEZVOUS)
    if timed and max(count, requested or 1) > 1:
        raise UserError("--minutes works with one process only; with several, give --steps instead.")
    if count > 1:
        if requested is not None and rendezvous is None:
            raise UserError("torchrun has already started the processes; leave out --processes.")
        return Role(int(os.environ["RANK"]), count, rendezvous)
    if requested is not None and requested > 1:
        return Role(count=requested, starts_workers=True)
    return Role()


@contextmanager
def join_workers(role: Role, device: torch.device, arguments: Sequence[str], resume_command: str) -> Iterator[Group]:
    """Connect the processes of a training for the time of this context; a single process needs no connection.

    `arguments` of `afda` start a worker. Raises a RunFailed that ends with `resume_command` if a process is lost.
    """
    if role.count == 1:
        yield ALONE
    elif role.starts_workers:
        with lead_workers(role.count, device, arguments, resume_command) as group:
            yield group
    else:
        if role.rendezvous is not None:
            threading.Thread(target=exit_with_parent, daemon=True).start()
        try:
            group = join_group(role.rank, role.count, device, role.rendezvous)
            yield group
        except ProcessLost:
            raise RunFailed(f"Training stopped: another process has ended; continue with: {resume_command}") from None
        leave_group(group)


@contextmanager
def lead_workers(count: int, device: torch.device, arguments: Sequence[str], resume_command: str) -> Iterator[Group]:
    """Start the workers, take part as rank 0, and end the workers."""
    folder = Path(tempfile.mkdtemp(prefix="afda-"))
    workers = [Worker(rank, count, folder, arguments) for rank in range(1, count)]
    done = threading.Event()

    def exit_without_workers() -> None:
        """End this process when a worker has failed: a collective operation may wait for that worker forever."""
        while not done.wait(0.1):
            if any(worker.has_failed for worker in workers) and not done.wait(GRACE_SECONDS):
                show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
                print(f"{show_cursor}Error: {explain_loss(workers, resume_command)}", file=sys.stderr, flush=True)
                shutil.rmtree(folder, ignore_errors=True)
                os._exit(1)

    threading.Thread(target=exit_without_workers, daemon=True).start()
    group = ALONE
    try:
        group = join_group(0, count, device, str(folder / "rendezvous"))
        yield group
    except ProcessLost:
        raise RunFailed(explain_loss(workers, resume_command)) from None
    finally:
        leave_group(group)
        done.set()
        for worker in workers:
            worker.kill()
        shutil.rmtree(folder, ignore_errors=True)


class Worker:
    """A process that takes part in the training of this one and ends with it."""

    def __init__(self, rank: int, count: int, folder: Path, arguments: Sequence[str]) -> None:
        self.rank, self.stderr = rank, folder / f"{rank}.txt"
        role = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, RENDEZVOUS: folder / "rendezvous"}
        with open(self.stderr, "wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "afda", *arguments, "--threads", str(torch.get_num_threads())],
                env={**os.environ, **{name: str(value) for name, value in role.items()}},
                stdin=subprocess.PIPE,  # closes when this process ends, however it ends; see exit_with_parent
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )

    @property
    def has_failed(self) -> bool:
        """Whether the process has ended with an error."""
        return self.process.poll() not in (None, 0)

    def explain_failure(self) -> str:
        """Return what ended the process: a signal, the last line of its errors, or its exit code."""
        code = self.process.returncode
        if code < 0:
            return f"was killed by signal {-code}"
        lines = self.stderr.read_text(errors="replace").strip().splitlines()
        if not lines:
            return f"ended with code {code}"
        return f"failed ({lines[-1].removeprefix('Error: ').removesuffix('.')})"

    def kill(self) -> None:
        """End the process and wait until it is gone."""
        self.process.kill()
        self.process.communicate()


def explain_loss(workers: list[Worker], resume_command: str) -> str:
    """Return a sentence that says which workers were lost and how to continue."""
    deadline = time.monotonic() + GRACE_SECONDS
    while not any(worker.has_failed for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)  # a connection may close before its process has ended
    count = len(workers) + 1
    lost = [f"process {worker.rank} of {count} {worker.explain_failure()}" for worker in workers if worker.has_failed]
    what = ", ".join(lost) or f"one of {count} processes was lost"
    return f"Training stopped: {what}; continue with: {resume_command}"


def exit_with_parent() -> None:
    """End this worker when the process that started it has ended."""
    os.read(0, 1)  # sys.stdin would take a lock that the interpreter needs at its exit
    os._exit(1)
