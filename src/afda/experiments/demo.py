"""The demonstration: supervised-only and AFDA at the same few labels of the embedded digits."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from afda.data import load
from afda.errors import RunFailed, UserError
from afda.experiments.sweep import Job, Progress, ignore_progress, make_jobs, run_sweep
from afda.machine.files import check_writable
from afda.machine.runtime import select_runtime
from afda.recipe import Recipe
from afda.recipes import AFDA, recipe
from afda.report.write import write_report
from afda.runs.schemas import Result

WAYS = {"supervised-only": ("supervised", "none"), "AFDA": (AFDA, "adversarial")}
"""The method and alignment of each row of the table."""


@dataclass(frozen=True)
class DemoRow:
    """The runs of one way of training: test errors in percent with mean and sample standard deviation, and means."""

    test_error: float
    test_error_std: float | None
    test_errors: list[float]
    mmd2: float
    seconds: float


@dataclass(frozen=True)
class Demo:
    """The table of the demonstration, and where its runs and its report are."""

    data: str
    labels: int
    seeds: int
    folder: str
    report: str
    ways: dict[str, DemoRow]


def run_demo(
    folder: Path, seeds: int = 3, labels: int = 50, steps: int | None = None, progress: Progress = ignore_progress
) -> Demo:
    """Train both ways with every seed, as many at a time as there are cores, and write a report."""
    jobs = plan_jobs(folder, seeds, labels, steps)
    run_sweep(jobs, progress=progress)
    if failed := [job for job in jobs if job.state == "failed"]:
        raise RunFailed(f"{failed[0].run.path.name} failed: {failed[0].problem}")
    page = folder / "report.html"
    newest = max((job.run.path / "result.json").stat().st_mtime_ns for job in jobs)
    if not page.exists() or page.stat().st_mtime_ns < newest:
        write_report([job.run.path for job in jobs], select_runtime("cpu"), page, overwrite=True)
    return Demo("digits", labels, seeds, str(folder), str(page), compare_ways(jobs))


def plan_jobs(folder: Path, seeds: int, labels: int, steps: int | None) -> list[Job]:
    """Return the runs of the demonstration, the long ones first so that no core idles at the end."""
    data = load("digits")
    if labels >= len(data.train):
        raise UserError(f"Ask for fewer than {len(data.train)} --labels, so that some digits are left without one.")
    settings = [f"labels={labels}"] + ([f"steps={steps}"] if steps else [])
    recipes: list[Recipe] = []
    for seed in range(seeds):
        for method, align in WAYS.values():
            recipes.append(recipe("digits-demo", data, method, align).with_settings([*settings, f"seed={seed}"]))
    check_writable(folder)
    return make_jobs(sorted(recipes, key=lambda r: not r.uses_unlabelled), folder, "digits")


def compare_ways(jobs: Sequence[Job]) -> dict[str, DemoRow]:
    """Return the table's rows by way of training."""
    titles = {way: method if align == "none" else f"{method}-{align}" for way, (method, align) in WAYS.items()}
    return {
        way: summarise_results([job.run.read_result() for job in jobs if job.recipe.title == title])
        for way, title in titles.items()
    }


def summarise_results(results: Sequence[Result]) -> DemoRow:
    """Return the row of some runs on the digits, all of which have a test error and an MMD^2."""
    errors = [result.test_error for result in results if result.test_error is not None]
    return DemoRow(
        test_error=mean(errors),
        test_error_std=stdev(errors) if len(errors) > 1 else None,
        test_errors=errors,
        mmd2=mean(result.mmd2 for result in results if result.mmd2 is not None),
        seconds=mean(result.seconds for result in results),
    )
