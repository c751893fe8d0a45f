"""The paper's tuning protocol: search its grids on a validation set, without opening the test set."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from afda.data.images import DataSet
from afda.data.split import MOST_VALIDATION
from afda.errors import RunFailed, UserError
from afda.experiments import figures, tables
from afda.experiments.study import Grid, Trial, explain_storage_errors, list_trials, open_study, queue_trial
from afda.experiments.sweep import LOCAL, Job, Machines
from afda.machine.files import write_atomically
from afda.recipe import Recipe
from afda.runs.directory import Run

LABELLED = (2, 4, 8, 16, 32)
SUPERVISED_BATCH = (8, 16, 32, 64, 100)
RATES = (1e-4, 5e-4, 1e-3, 5e-3)
RAMPED_RATES = (1e-3, 3e-3, 5e-3)
CONSISTENCY = (1.0, 5.0, 10.0, 50.0, 100.0)
RADII = (0.5, 0.7, 1.0, 1.4, 2.0)
"""VAT's radius as multiples of the recipe's; the paper searches it without giving the values."""
LEAST_UNLABELLED = 2
"""Unlabelled images that a batch must keep: BatchNorm needs two."""


def build_grid(recipe: Recipe) -> Grid:
    """Return the grids of the paper's supplement for this method, with the recipe's own values."""
    ramped = recipe.optimisation.schedule == "ramps"
    batches: tuple[float, ...] = SUPERVISED_BATCH
    if recipe.uses_unlabelled:
        whole = recipe.labelled_batch + recipe.unlabelled_batch
        batches = tuple(size for size in LABELLED if size <= whole - LEAST_UNLABELLED)
    grid: Grid = {
        "labelled_batch": [*batches, recipe.labelled_batch],
        "optimisation.learning_rate": [*(RAMPED_RATES if ramped else RATES), recipe.optimisation.learning_rate],
    }
    for method in recipe.method:
        fields = method.model_dump()
        if method.name() == "vat":
            grid["method.vat.radius"] = [round(factor * fields["radius"], 4) for factor in RADII]
        elif method.name() in ("pi-model", "mean-teacher"):
            grid[f"method.{method.name()}.weight"] = [*CONSISTENCY, fields["weight"]]
    return {path: sorted(set(values)) for path, values in grid.items()}


def apply_point(recipe: Recipe, point: dict[str, float]) -> Recipe:
    """Return the recipe at a point of the grid; the batch keeps its size, whatever share of it is labelled."""
    settings = [f"{path}={value}" for path, value in point.items()]
    if recipe.uses_unlabelled:
        whole = recipe.labelled_batch + recipe.unlabelled_batch
        settings.append(f"unlabelled_batch={whole - int(point['labelled_batch'])}")
    return recipe.with_settings(settings)


def hold_out(recipe: Recipe) -> Recipe:
    """Return the recipe with validation images held out."""
    return recipe.with_settings(["validation=true"])


def check_settings(settings: Sequence[str]) -> None:
    """Refuse settings that the search itself decides."""
    for setting in settings:
        if (path := setting.partition("=")[0].strip()) in ("seed", "validation"):
            raise UserError(f"A search sets {path} itself; use --seeds for the number of seeds.")


def check_labels(data: DataSet, recipe: Recipe) -> None:
    """Refuse a number of labels that leaves too few to learn from or for a validation set."""
    known = int((data.train.y >= 0).sum())
    most = max(known // 2, known - MOST_VALIDATION)
    if (recipe.labels or known) > most:
        raise UserError(
            "A search chooses by labelled images that it holds out, as many as it learns from "
            f"(at most {MOST_VALIDATION:,}): of the {known:,} labels here, keep {most:,} or fewer with --labels."
        )
    hold_out(recipe).split_of(data)


@dataclass(frozen=True)
class SearchResult:
    """The trials of a search, the best first, and the files that were written."""

    recipe: Recipe
    trials: list[Trial]
    caution: str
    """How far the order of the trials can be trusted."""
    best: Path
    """The file of the best recipe."""
    page: Path

    @property
    def files(self) -> list[Path]:
        return [self.best, self.page]


def ignore_message(_: str) -> None:
    """Show nothing."""


@dataclass
class Search:
    """A search under way in this process. Its storage is touched by this process and others that share the search,
    wherever the trainings run."""

    study: Any
    recipe: Recipe
    data: str
    folder: Path
    seeds: int = 1
    threads: int = 1
    machines: Machines = LOCAL
    stop: threading.Event = field(default_factory=threading.Event)
    tell: Callable[[str], None] = ignore_message
    failures: list[RunFailed] = field(default_factory=list)
    problems: list[BaseException] = field(default_factory=list)
    """Exceptions that end the search. Optuna drops those of the last trials that run at once."""
    tried: int = 0

    def run(self, trials: int, at_once: int) -> None:
        """Run up to `trials` points of the grid, `at_once` at a time.

        When `stop` is set, the trainings are stopped, their points queued again, and KeyboardInterrupt is raised.
        """
        with explain_storage_errors(self.folder):
            while trials > 0 and not self.problems:
                self.study.optimize(self.run_trial, n_trials=trials, n_jobs=at_once, catch=(RunFailed,))
                # It ends early after the last point that the sampler has not seen, though others may be queued.
                trials -= max(1, self.tried)
                self.tried = 0
                if not any(t.state.name == "WAITING" for t in self.study.get_trials(deepcopy=False)):
                    break
            if self.problems:
                raise self.problems[0]

    def run_trial(self, trial: Any) -> float:
        """Return the validation error of a point, and keep what went wrong."""
        self.tried += 1
        try:
            error = self.measure_point(trial)
            self.tell(f"{', '.join(f'{path} {value:g}' for path, value in trial.params.items())}: {error:.2f} %")
            return error
        except RunFailed as failure:
            self.failures.append(failure)
            self.tell(f"failed: {failure}")
            raise
        except (Exception, KeyboardInterrupt) as problem:
            self.problems.append(problem)
            raise

    def measure_point(self, trial: Any) -> float:
        """Train a point with each seed and return the mean validation error in percent."""
        point = {path: trial.suggest_categorical(path, values) for path, values in build_grid(self.recipe).items()}
        name = "_".join(f"{path.rpartition('.')[2]}-{value}" for path, value in point.items())
        errors = []
        for seed in range(self.seeds):
            recipe = hold_out(apply_point(self.recipe, point)).with_settings([f"seed={seed}"])
            job = Job(recipe, Run(self.folder / "trials" / f"{name}-seed{seed}"), self.data, ("--no-test",))
            if not self.run_job(job):
                queue_trial(self.study, self.study.trials[trial.number])
                raise KeyboardInterrupt
            error = job.run.read_result().val_error
            if error is None:
                raise RunFailed(f"{job.run.path} has no validation error; remove it and give the command again.")
            errors.append(error)
        return mean(errors)

    def run_job(self, job: Job) -> bool:
        """Run a job to its end or until `stop` is set; return True if it has ended."""
        try:
            while job.state in ("waiting", "running") and not self.stop.is_set():
                if job.state == "waiting":
                    job.start(self.threads, self.machines)
                time.sleep(0.2)
                job.poll()
        finally:
            if job.process is not None:
                job.process.terminate()
                job.stop()
        if job.state == "failed" and not self.stop.is_set():
            raise RunFailed(f"{job.run.path}: {job.problem}")
        return job.state == "done"


def run_search(
    data: DataSet,
    source: str,
    recipe: Recipe,
    folder: Path | None = None,
    *,
    trials: int | None = None,
    seeds: int = 1,
    at_once: int | None = None,
    threads: int = 1,
    machines: Machines = LOCAL,
    stop: threading.Event | None = None,
    tell: Callable[[str], None] = ignore_message,
) -> SearchResult:
    """Run points of the grid on a validation set, by default all that are left, and write the best recipe and a page.

    `source` is the data as `afda train` takes it. The folder, by default one below `tuning`, can be shared by several
    processes, and a search in it is continued. `tell` gets a line for each trial. `stop` ends the search, which then
    raises KeyboardInterrupt.
    """
    check_labels(data, recipe)
    folder = folder or Path("tuning") / f"{data.name}-{recipe.title}-{recipe.labels}"
    grid = build_grid(recipe)
    study = open_study(folder, recipe, seeds, grid)
    search = Search(study, recipe, source, folder, seeds, threads, machines, stop or threading.Event(), tell)
    left = math.prod(len(values) for values in grid.values()) - len(list_trials(study))
    if left > 0:
        running = min(trials or left, left)
        tell(f"{left} points of the grid are left; running {running}.")
        search.run(running, at_once or machines.slots(threads))
    done = list_trials(study)
    if not done:
        first = f"Every trial failed, the first with: {search.failures[0]}" if search.failures else "No trial was run."
        raise RunFailed(first)
    best = folder / "best.json"
    write_atomically(best, apply_point(recipe, done[0].settings).to_json().encode())
    caution = describe_accuracy(done, data, recipe, seeds)
    return SearchResult(recipe, done, caution, best, write_page(done, recipe, folder, caution))


def describe_accuracy(trials: Sequence[Trial], data: DataSet, recipe: Recipe, seeds: int) -> str:
    """Return how far the order of the trials can be trusted: one standard error of the best, and ties."""
    best, held_out = trials[0].val_error, len(hold_out(recipe).split_of(data).validation)
    error = (best * (100 - best) / (held_out * seeds)) ** 0.5
    text = f"Labels: {recipe.labels}, validation images: {held_out}, seeds: {seeds}; "
    text += f"one standard error is {error:.1f} points."
    tied = sum(trial.val_error == best for trial in trials)
    return text + (f" {tied} points share the best error; the first of the grid is taken." if tied > 1 else "")


def write_page(trials: Sequence[Trial], recipe: Recipe, folder: Path, caution: str) -> Path:
    """Write a page with a plot of the validation error against each setting, and a table of the trials."""
    title = f"Tuning: {recipe.data}, {recipe.title}, {recipe.labels} labels"
    about = (
        f"Validation error of {len(trials)} points of the grid, the best first. {caution} The test set was not opened."
    )
    header = [*trials[0].settings, "validation error %"]
    body = [[*(f"{value:g}" for value in trial.settings.values()), f"{trial.val_error:.2f}"] for trial in trials]
    picture = figures.render_svg(figures.draw_trials(trials))
    page = tables.render_page(title, about, [header, *body], picture, words=0)
    write_atomically(folder / "trials.html", page.encode())
    return folder / "trials.html"
