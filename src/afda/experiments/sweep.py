"""A sweep of many runs, by default as processes of this machine. Each run can be resumed, and fails alone."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from afda.errors import InUse, RunFailed, UserError
from afda.experiments.evidence import RunRecord
from afda.machine.runtime import list_gpus
from afda.recipe import Recipe
from afda.runs.directory import IN_USE, Run, describe_differences, open_run
from afda.runs.log import LogLine


class Process(Protocol):
    """A run under way, here or on another machine: a part of the interface of `subprocess.Popen`."""

    returncode: int | None

    def poll(self) -> int | None: ...

    def communicate(self) -> tuple[Any, str]: ...

    def terminate(self) -> None: ...


class Machines(Protocol):
    """Where runs are trained: processes of this machine, or a cluster."""

    @property
    def device(self) -> str:
        """The device of a run: cuda or cpu."""
        ...

    def slots(self, threads: int) -> int:
        """Return how many runs can be trained at a time."""
        ...

    def launch(self, run: Run, data: str, threads: int, options: tuple[str, ...]) -> Process:
        """Start or continue a run that is open and locked."""
        ...


class LocalProcesses:
    """Processes of this machine: one per GPU, each with its own, or one per core if there are none."""

    def __init__(self) -> None:
        self.on_gpus: list[tuple[str, Process]] = []
        self.choosing = threading.Lock()

    @property
    def device(self) -> str:
        return "cuda" if list_gpus() else "cpu"

    def slots(self, threads: int) -> int:
        return len(list_gpus()) or max(1, (os.cpu_count() or 1) // threads)

    def launch(self, run: Run, data: str, threads: int, options: tuple[str, ...]) -> Process:
        run.unlock()  # the process takes the lock
        arguments = [sys.executable, "-m", "afda", *build_command(run.path, data, threads, options)]
        with self.choosing:
            self.on_gpus = [(gpu, process) for gpu, process in self.on_gpus if process.poll() is None]
            busy = [gpu for gpu, _ in self.on_gpus]
            gpu = min(list_gpus(), key=busy.count, default=None)
            variables = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu} if gpu is not None else None
            process = subprocess.Popen(
                arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=variables
            )
            if gpu is not None:
                self.on_gpus.append((gpu, process))
        return process


LOCAL = LocalProcesses()


def build_command(path: Path, data: str, threads: int, options: tuple[str, ...]) -> list[str]:
    """Return the arguments of `afda` that start or continue the run whose recipe is in this directory."""
    how = ["--resume", "--no-baseline", "--quiet", "--threads", str(threads), *options]
    return ["train", data, "--recipe", str(path / "recipe.json"), "--out", str(path), *how]


@dataclass
class Job:
    """One run of a sweep and its state."""

    recipe: Recipe
    run: Run
    data: str
    options: tuple[str, ...] = ()
    """Further options of `afda train`."""
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    problem: str = ""
    process: Process | None = None
    found_finished: bool = False
    """True if it was done before its turn came."""
    reused: RunRecord | None = None
    """A finished run of another folder that stands for this one."""
    started_at: float = 0.0
    process_seconds: float = 0.0
    """When its process was started, and how long it ran."""

    def __post_init__(self) -> None:
        if self.run.finished:
            if changed := describe_differences(self.run.read_recipe(), self.recipe):
                raise UserError(f"{self.run.path} is a run of another recipe ({changed}); choose another --out.")
            self.state, self.found_finished, self.reused = "done", True, None
        elif self.reused is not None:
            self.state, self.found_finished = "done", True

    @property
    def kind(self) -> tuple[str, str]:
        """Data and method: runs of one kind take about as long per update."""
        return self.data, self.recipe.title

    @cached_property
    def seconds(self) -> float:
        """How long the finished run took, with start and end of its process."""
        return max(self.process_seconds, self.run.read_result().seconds)

    @property
    def precision(self) -> str | None:
        """The precision of the run, or None if it has not begun or its files do not say."""
        if self.reused is not None:
            return self.reused.precision
        with contextlib.suppress(UserError):
            return self.run.read_environment().precision or None
        return None

    @property
    def latest(self) -> LogLine:
        """The newest line of the run's log."""
        log = self.run.log.read()
        return log[-1] if log else LogLine(step=0)

    def start(self, threads: int, machines: Machines = LOCAL, precision: str = "auto") -> None:
        """Start or continue the run, unless another process is at it."""
        # The recipe is written first, so that the process has only to resume the run.
        try:
            run = open_run(self.run.path, self.recipe, resume=True)
            if run.finished:
                run.unlock()
                self.state, self.found_finished = "done", True
                return
            self.process = machines.launch(run, self.data, threads, (*self.options, "--precision", precision))
        except InUse:
            return  # perhaps by a process of a sweep that was killed: the job goes on waiting
        except UserError as error:
            self.state, self.problem = "failed", str(error)
            return
        self.state, self.started_at = "running", time.monotonic()

    def poll(self) -> None:
        """Update the state if the process has ended."""
        if self.process is not None and self.process.poll() is not None:
            _, complaint = self.process.communicate()
            self.process_seconds = time.monotonic() - self.started_at
            last = (complaint.strip().splitlines() or [f"exit code {self.process.returncode}"])[-1]
            if self.process.returncode == 0 and self.run.finished:
                self.state = "done"
            elif IN_USE in last:  # a process of another sweep was first
                self.state = "waiting"
            else:
                self.state, self.problem = "failed", last.removeprefix("Error: ").removeprefix("Error: ")
            self.process = None

    def stop(self) -> None:
        """Wait for a process that was asked to end."""
        if self.process is not None:
            self.process.communicate()
            self.process, self.state = None, "waiting"


Progress = Callable[[list[Job]], None]
"""Called with all jobs of a sweep whenever there may be news."""


def ignore_progress(_: list[Job]) -> None:
    """Show nothing."""


def seconds_left(jobs: list[Job]) -> float | None:
    """Estimate how long a sweep will go on, or return None if nothing is known.

    The estimate is what an update takes in runs of the same method and data that are done or under way. Reused runs do
    not count: they may be of another machine.
    """
    updates: dict[tuple[str, str], list[float]] = {}
    left = 0.0
    running = [job for job in jobs if job.state == "running"]
    for job in jobs:
        if job.state == "done" and job.reused is None:
            updates.setdefault(job.kind, []).append(job.seconds / job.recipe.steps)
    unknown = [job for job in jobs if job.state == "waiting"]
    for job in running:
        line = job.latest
        if not (line.step and line.seconds):
            unknown.append(job)
        else:
            update = line.seconds / line.step
            updates.setdefault(job.kind, []).append(update)
            left += update * (job.recipe.steps - line.step)
    if not updates:
        return None
    means = {kind: sum(times) / len(times) for kind, times in updates.items()}
    typical = sum(means.values()) / len(means)
    left += sum(means.get(job.kind, typical) * job.recipe.steps for job in unknown)
    return left / max(1, len(running))


def make_jobs(recipes: Sequence[Recipe], folder: Path, data: str) -> list[Job]:
    """Return a job per recipe, in a directory named after method, labels and seed; finished runs are done already."""
    return [Job(recipe, Run(folder / f"{recipe.title}-{recipe.labels}-seed{recipe.seed}"), data) for recipe in recipes]


def sweep(
    jobs: list[Job],
    at_once: int | None = None,
    threads: int = 1,
    machines: Machines = LOCAL,
    precision: str = "auto",
) -> Generator[list[Job], None, None]:
    """Run all jobs, `at_once` at a time, and yield them whenever there may be news. Closing the generator stops them.

    Every run has the same number of threads however many run at once, because that number decides the last bits, and
    the same precision, because runs are compared: on CPUs, where the best precision differs between methods, `auto` is
    float32.
    """
    if precision == "auto" and machines.device == "cpu":
        precision = "float32"
    try:
        while any(job.state in ("waiting", "running") for job in jobs):
            for job in jobs:
                job.poll()
            running = sum(job.state == "running" for job in jobs)
            slots = at_once or machines.slots(threads)
            for job in [job for job in jobs if job.state == "waiting"]:
                if running < slots:
                    job.start(threads, machines, precision)
                    running += job.state == "running"
            yield jobs
            time.sleep(0.5)
    finally:
        for job in jobs:
            if job.process is not None:
                job.process.terminate()  # it saves its state and ends
        for job in jobs:
            job.stop()
    yield jobs


def run_sweep(
    jobs: list[Job],
    at_once: int | None = None,
    threads: int = 1,
    machines: Machines = LOCAL,
    precision: str = "auto",
    progress: Progress = ignore_progress,
) -> None:
    """Run all jobs to their end and call `progress` whenever there may be news. An exception stops them."""
    with contextlib.closing(sweep(jobs, at_once, threads, machines, precision)) as states:
        for state in states:
            progress(state)


def check_failures(jobs: Sequence[Job]) -> None:
    """Raise RunFailed if a run of a sweep failed."""
    if failed := [job for job in jobs if job.state == "failed"]:
        first = failed[0]
        raise RunFailed(f"{len(failed)} of {len(jobs)} runs failed, the first ({first.run.path}) with: {first.problem}")
