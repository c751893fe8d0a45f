"""Many runs on this machine's processes: each is a command of its own, resumable, and fails alone."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from afda.recipe import Recipe
from afda.runs import Run, open_run


@dataclass
class Job:
    """One run of a sweep and how far it is."""

    recipe: Recipe
    run: Run
    data: str
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    problem: str = ""
    process: subprocess.Popen[str] | None = None

    @property
    def latest(self) -> dict[str, Any]:
        """The newest line of the run's log."""
        log = self.run.log()
        return log[-1] if log else {"step": 0}

    def start(self, threads: int) -> None:
        # The recipe is laid down first, so that the process has only to resume the run.
        open_run(self.run.path, self.recipe, resume=True).unlock()
        command = [sys.executable, "-m", "afda", "train", self.data, "--recipe", str(self.run.path / "recipe.json")]
        self.process = subprocess.Popen(
            [*command, "--out", str(self.run.path), "--resume", "--quiet", "--threads", str(threads)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.state = "running"

    def look(self) -> None:
        """Notice that the process has ended."""
        if self.process is not None and self.process.poll() is not None:
            _, complaint = self.process.communicate()
            self.state = "done" if self.process.returncode == 0 and self.run.finished else "failed"
            self.problem = (complaint.strip().splitlines() or [f"exit code {self.process.returncode}"])[-1]
            self.process = None


def jobs(recipes: list[Recipe], folder: Path, data: str) -> list[Job]:
    """A job per recipe, in a directory named after what sets it apart; finished runs are done already."""
    made = []
    for recipe in recipes:
        run = Run(folder / f"{recipe.title}-{recipe.labels}-seed{recipe.seed}")
        made.append(Job(recipe, run, data, state="done" if run.finished else "waiting"))
    return made


def sweep(todo: list[Job], at_once: int | None = None) -> Iterator[list[Job]]:
    """Run all jobs, `at_once` at a time, and yield them whenever there may be news. Stopping it stops them."""
    cores = os.cpu_count() or 1
    at_once = min(at_once or cores, len(todo))
    try:
        while any(job.state in ("waiting", "running") for job in todo):
            for job in todo:
                job.look()
            running = sum(job.state == "running" for job in todo)
            for job in [job for job in todo if job.state == "waiting"][: at_once - running]:
                job.start(threads=max(1, cores // at_once))
            yield todo
            time.sleep(0.5)
    finally:
        for job in todo:
            if job.process is not None:
                job.process.terminate()  # it saves its state and ends
        for job in todo:
            if job.process is not None:
                job.process.wait()
    yield todo
