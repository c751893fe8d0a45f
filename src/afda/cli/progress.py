"""What standard error shows while a command works: bars and live tables on a terminal, else a line now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from afda.cli import console
from afda.recipe import Recipe
from afda.registry import Metric
from afda.runs.log import LogLine
from afda.runs.selection import Selection
from afda.training.metrics import describe_metrics
from afda.training.select import TrialDone

BAR = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
LOG_SECONDS = 10.0
"""Seconds between two lines of a training where there is no terminal."""
TASK_SECONDS = 60.0
"""Seconds between two lines of a list of tasks there."""


def format_line(line: LogLine, recipe: Recipe) -> str:
    """Return a log line as text: every loss term and metric, and the speed."""
    declared = describe_metrics(recipe)
    parts = []
    for name, value in line.values.items():
        metric = declared.get(name) or Metric(name=name, label=name.replace("_", " "), description="")
        if metric.in_progress and value is not None:
            parts.append(f"{metric.label} {metric.show(value)}")
    parts.append(f"{recipe.images_per_step * line.step / max(line.seconds, 1e-9):.0f} img/s")
    return " · ".join(parts)


class DecodingProgress(AbstractContextManager["DecodingProgress"]):
    """A bar for image files being decoded; it appears when there is something to decode."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet or not console.err.is_terminal
        self.bar: Progress | None = None

    def update(self, done: int, total: int) -> None:
        """Show how many of how many files are decoded."""
        if self.quiet:
            return
        if self.bar is None:
            self.bar = Progress(*BAR, console=console.err, transient=True)
            self.bar.add_task("decoding images")
            self.bar.start()
        self.bar.update(self.bar.task_ids[0], completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


class TrainingProgress(AbstractContextManager["TrainingProgress"]):
    """Shows a training while it goes on: a bar on a terminal, else a line now and then."""

    def __init__(self, recipe: Recipe, step: int = 0) -> None:
        self.recipe = recipe
        self.values: dict[str, float | None] = {}
        self.printed = 0.0
        self.live: Live | None = None
        if step:
            console.print_status(f"Continuing after {step} of {recipe.steps} updates.")
        self.bar = Progress(*BAR, console=console.err)
        self.task = self.bar.add_task(recipe.title, total=recipe.steps, completed=step)

    def __enter__(self) -> Self:
        if console.err.is_terminal:
            self.live = Live(self.bar, console=console.err, refresh_per_second=4, transient=True)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def update(self, line: LogLine) -> None:
        """Show a line of the log; a warning stays on the screen."""
        if line.warning is not None:
            console.print_warning(f"after {line.step} updates: {line.warning}")
        self.values |= line.values  # errors are measured more rarely than losses
        if self.live is not None:
            self.bar.update(self.task, completed=line.step)
            latest = line.model_copy(update={"values": self.values})
            self.live.update(Group(self.bar, Text(format_line(latest, self.recipe))))
        elif line.step == self.recipe.steps or time.monotonic() - self.printed > LOG_SECONDS:
            self.printed = time.monotonic()
            left = (self.recipe.steps - line.step) * line.seconds / line.step
            words = f"step {line.step}/{self.recipe.steps} · {format_line(line, self.recipe)} · {left:.0f} s left"
            console.print_status(words)


class TrialProgress(AbstractContextManager["TrialProgress"]):
    """Shows the comparison of candidates: a bar on a terminal, else a line for each training."""

    def __init__(self, selection: Selection) -> None:
        folds, count = len(selection.folds), len(selection.candidates)
        compared = f"{count} candidate{'s' if count > 1 else ''}"
        words = f"Comparing {compared} by cross-validation on the labels, in {folds} folds."
        if folds:
            console.print_status(words)
        self.bar = Progress(*BAR, console=console.err, transient=True, disable=not console.err.is_terminal)
        done = sum(len(candidate.trials) for candidate in selection.candidates)
        self.task = self.bar.add_task("comparing", total=folds * count, completed=done)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def update(self, trial: TrialDone) -> None:
        """Show a training that has ended, with the candidate's error so far."""
        selection = trial.selection
        estimate = selection.estimate(selection.find(trial.candidate))
        words = f"{trial.candidate}: {estimate.wrong} of {estimate.images} wrong" if estimate else trial.candidate
        self.bar.update(self.task, description=words, completed=trial.done)
        if not console.err.is_terminal:
            console.print_status(f"trial {trial.done}/{trial.most} · {words}")


@contextmanager
def count_progress(what: str, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a number that grows, where the end is not known."""
    if quiet or not console.err.is_terminal:
        yield lambda done: None
        return
    with console.err.status(what) as status:
        yield lambda done: status.update(f"{done:,} {what}")


@contextmanager
def show_status(text: str) -> Iterator[Callable[[str], None]]:
    """Show what the command is doing now."""
    with console.err.status(console.to_text(text)) as status:
        yield lambda words: status.update(console.to_text(words))


@contextmanager
def task_progress(total: int) -> Iterator[Callable[[str, int], None]]:
    """Show the name of a task and how many are done: a bar on a terminal, else a line per minute."""
    if console.err.is_terminal:
        with Progress(*BAR, console=console.err, transient=True) as bar:
            task = bar.add_task("measuring", total=total)
            yield lambda name, done: bar.update(task, description=name, completed=done)
        return
    printed = time.monotonic()

    def print_line(name: str, done: int) -> None:
        nonlocal printed
        if time.monotonic() - printed > TASK_SECONDS:
            printed = time.monotonic()
            console.print_status(f"{done} of {total} done; {name}")

    yield print_line
