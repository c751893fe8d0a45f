"""What standard error shows while a sweep of many runs goes on."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Self

from rich.live import Live
from rich.table import Table

from afda.cli import console
from afda.cli.progress import format_line
from afda.experiments.sweep import Job, seconds_left

SWEEP_SECONDS = 300.0
"""Seconds after which a sweep that is not on a terminal says how far it is."""
MOST_WAITING = 5
"""Waiting runs of a sweep that are shown."""


class SweepProgress(AbstractContextManager["SweepProgress"]):
    """Shows many runs while they go on: a table on a terminal, else a line for each run that ends."""

    def __init__(self, title: str = "") -> None:
        self.title = title
        self.jobs: list[Job] = []
        self.ended: set[int] = set()
        self.finished_before: int | None = None
        self.printed = time.monotonic()
        self.live: Live | None = None

    def __enter__(self) -> Self:
        if console.err.is_terminal:
            self.live = Live(console=console.err, refresh_per_second=4, transient=True)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def update(self, jobs: list[Job]) -> None:
        """Show how far the runs are."""
        self.jobs = jobs
        if self.live is not None:
            self.live.update(build_sweep_table(jobs, self.title))
        else:
            self.print_news()

    def print_news(self) -> None:
        """Print a line for each run that has ended, and from time to time how far the others are."""
        now = sum(job.found_finished for job in self.jobs)
        if now != self.finished_before:
            self.finished_before = now
            console.print_status(f"{len(self.jobs)} runs, {now} of them finished before.")
        for job in self.jobs:
            if job.state in ("done", "failed") and not job.found_finished and id(job) not in self.ended:
                self.ended.add(id(job))
                detail = job.problem if job.state == "failed" else f"{job.run.read_result().seconds:.0f} s"
                console.print_status(f"{job.run.path.name}: {job.state} ({detail}); {summarise_jobs(self.jobs)}")
        if time.monotonic() - self.printed > SWEEP_SECONDS:
            self.printed = time.monotonic()
            running = [job for job in self.jobs if job.state == "running"]
            steps = [f"{job.run.path.name} {job.latest.step}/{job.recipe.steps}" for job in running]
            console.print_status("; ".join([*steps, summarise_jobs(self.jobs)]))


def summarise_jobs(jobs: list[Job]) -> str:
    """Return how many runs are done and how long the others will take."""
    done, left = sum(job.state == "done" for job in jobs), seconds_left(jobs)
    return f"{done} of {len(jobs)} runs done" + (f", about {format_duration(left)} left" if left else "")


def build_sweep_table(jobs: list[Job], title: str) -> Table:
    """Return a table of the runs under way, failed and next; there may be more runs than the screen has lines."""
    summary = summarise_jobs(jobs)
    table = Table(title=f"{title}: {summary}" if title else summary, title_justify="left")
    for column in ("run", "state", "step", "progress"):
        table.add_column(column)
    waiting = [job for job in jobs if job.state == "waiting"]
    if len(waiting) > MOST_WAITING:
        table.caption = f"and {len(waiting) - MOST_WAITING} more waiting"
    for job in [job for job in jobs if job.state in ("running", "failed")] + waiting[:MOST_WAITING]:
        step = words = ""
        if job.state == "running":
            line = job.latest
            step = f"{line.step}/{job.recipe.steps}"
            words = format_line(line, job.recipe) if line.step else ""
        elif job.state == "failed":
            words = job.problem
        table.add_row(job.run.path.name, job.state, step, words)
    return table


@contextmanager
def follow_sweep(title: str) -> Iterator[Callable[[list[Job]], None]]:
    """Show the progress of a sweep; after an interruption say how far it came, and exit."""
    progress = SweepProgress(title)
    try:
        with progress:
            yield progress.update
    except KeyboardInterrupt:
        done = sum(job.state == "done" for job in progress.jobs)
        console.print_note(f"stopped with {done} of {len(progress.jobs)} runs done. Repeat the command to continue.")
        sys.exit(130)


def format_duration(seconds: float) -> str:
    """Return a rough duration in the unit that fits."""
    if seconds > 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"
