"""Many runs, by default on this machine's processes: each is a command of its own, resumable, and fails alone."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from afda.errors import InUse, UserError
from afda.recipe import Recipe
from afda.runs import IN_USE, Run, differences, open_run
from afda.runtime import gpus


class Process(Protocol):
    """A run under way, wherever it is: what `subprocess.Popen` has of it."""

    returncode: int | None

    def poll(self) -> int | None: ...

    def communicate(self) -> tuple[Any, str]: ...

    def terminate(self) -> None: ...


class Machines(Protocol):
    """Where runs go: this machine's processes, or a cluster."""

    @property
    def device(self) -> str:
        """What a run is trained on: cuda or cpu."""
        ...

    def slots(self, threads: int) -> int:
        """How many runs there is room for."""
        ...

    def launch(self, run: Run, data: str, threads: int, options: tuple[str, ...]) -> Process:
        """Begin or continue a run that is open and locked."""
        ...


class Here:
    """This machine's processes: one per GPU, each with its own, or one per core if there are none."""

    def __init__(self) -> None:
        self.on_gpus: list[tuple[str, Process]] = []
        self.choosing = threading.Lock()

    @property
    def device(self) -> str:
        return "cuda" if gpus() else "cpu"

    def slots(self, threads: int) -> int:
        return len(gpus()) or max(1, (os.cpu_count() or 1) // threads)

    def launch(self, run: Run, data: str, threads: int, options: tuple[str, ...]) -> Process:
        run.unlock()  # the process takes the lock
        words = [sys.executable, "-m", "afda", *command(run.path, data, threads, options)]
        with self.choosing:
            self.on_gpus = [(gpu, process) for gpu, process in self.on_gpus if process.poll() is None]
            busy = [gpu for gpu, _ in self.on_gpus]
            gpu = min(gpus(), key=busy.count, default=None)
            mine = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu} if gpu is not None else None
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=mine)
            if gpu is not None:
                self.on_gpus.append((gpu, process))
        return process


HERE = Here()


def command(path: Path, data: str, threads: int, options: tuple[str, ...]) -> list[str]:
    """The command line that begins or continues the run whose recipe is in this directory."""
    how = ["--resume", "--no-baseline", "--quiet", "--threads", str(threads), *options]
    return ["train", data, "--recipe", str(path / "recipe.json"), "--out", str(path), *how]


@dataclass
class Job:
    """One run of a sweep and how far it is."""

    recipe: Recipe
    run: Run
    data: str
    options: tuple[str, ...] = ()
    """More of the command line of `afda train`."""
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    problem: str = ""
    process: Process | None = None
    found_finished: bool = False
    """Whether it was done before its turn came."""
    began: float = 0.0
    took: float = 0.0
    """When its process was started, and how long it lived."""

    def __post_init__(self) -> None:
        if self.run.finished:
            if changed := differences(self.run.recipe(), self.recipe):
                raise UserError(f"{self.run.path} is a run of another recipe ({changed}); choose another --out.")
            self.state, self.found_finished = "done", True

    @property
    def kind(self) -> tuple[str, str]:
        """Runs of one kind take about as long per update."""
        return self.data, self.recipe.title

    @cached_property
    def seconds(self) -> float:
        """How long the finished run took, with what its process did before and after training."""
        return max(self.took, self.run.result()["seconds"])

    @property
    def precision(self) -> str | None:
        """That of the run, if it has begun and its files say."""
        with contextlib.suppress(UserError):
            return self.run.read_json("environment.json").get("precision")
        return None

    @property
    def latest(self) -> dict[str, Any]:
        """The newest line of the run's log."""
        log = self.run.log()
        return log[-1] if log else {"step": 0}

    def start(self, threads: int, machines: Machines = HERE, precision: str = "auto") -> None:
        # The recipe is laid down first, so that the process has only to resume the run.
        try:
            run = open_run(self.run.path, self.recipe, resume=True)
            if run.finished:
                run.unlock()
                self.state, self.found_finished = "done", True
                return
            self.process = machines.launch(run, self.data, threads, (*self.options, "--precision", precision))
        except InUse:
            return  # perhaps by a process of a sweep that was killed: it goes on waiting
        except UserError as error:
            self.state, self.problem = "failed", str(error)
            return
        self.state, self.began = "running", time.monotonic()

    def look(self) -> None:
        """Notice that the process has ended."""
        if self.process is not None and self.process.poll() is not None:
            _, complaint = self.process.communicate()
            self.took = time.monotonic() - self.began
            last = (complaint.strip().splitlines() or [f"exit code {self.process.returncode}"])[-1]
            if self.process.returncode == 0 and self.run.finished:
                self.state = "done"
            elif IN_USE in last:  # a process of another sweep was there first
                self.state = "waiting"
            else:
                self.state, self.problem = "failed", last.removeprefix("afda: ")
            self.process = None

    def stop(self) -> None:
        """Wait for a process that was told to end."""
        if self.process is not None:
            self.process.communicate()
            self.process, self.state = None, "waiting"


def seconds_left(todo: list[Job]) -> float | None:
    """How long a sweep will go on, by what an update takes in runs of the same method and data that are done or under
    way; None while unknown."""
    updates: dict[tuple[str, str], list[float]] = {}
    left = 0.0
    running = [job for job in todo if job.state == "running"]
    for job in todo:
        if job.state == "done":
            updates.setdefault(job.kind, []).append(job.seconds / job.recipe.steps)
    unknown = [job for job in todo if job.state == "waiting"]
    for job in running:
        line = job.latest
        if not (line["step"] and "seconds" in line):
            unknown.append(job)
        else:
            update = line["seconds"] / line["step"]
            updates.setdefault(job.kind, []).append(update)
            left += update * (job.recipe.steps - line["step"])
    if not updates:
        return None
    means = {kind: sum(times) / len(times) for kind, times in updates.items()}
    typical = sum(means.values()) / len(means)
    left += sum(means.get(job.kind, typical) * job.recipe.steps for job in unknown)
    return left / max(1, len(running))


def jobs(recipes: list[Recipe], folder: Path, data: str) -> list[Job]:
    """A job per recipe, in a directory named after what sets it apart; finished runs are done already."""
    return [Job(recipe, Run(folder / f"{recipe.title}-{recipe.labels}-seed{recipe.seed}"), data) for recipe in recipes]


def sweep(
    todo: list[Job],
    at_once: int | None = None,
    threads: int = 1,
    machines: Machines = HERE,
    precision: str = "auto",
) -> Generator[list[Job], None, None]:
    """Run all jobs, `at_once` at a time, and yield them whenever there may be news. Stopping it stops them.

    Every run has the same number of threads however many run at once, for that number decides the last bits, and the
    same precision, for they are compared: on CPUs, where methods differ in the one that suits them, `auto` is float32.
    """
    if precision == "auto" and machines.device == "cpu":
        precision = "float32"
    try:
        while any(job.state in ("waiting", "running") for job in todo):
            for job in todo:
                job.look()
            running = sum(job.state == "running" for job in todo)
            room = at_once or machines.slots(threads)
            for job in [job for job in todo if job.state == "waiting"]:
                if running < room:
                    job.start(threads, machines, precision)
                    running += job.state == "running"
            yield todo
            time.sleep(0.5)
    finally:
        for job in todo:
            if job.process is not None:
                job.process.terminate()  # it saves its state and ends
        for job in todo:
            job.stop()
    yield todo
