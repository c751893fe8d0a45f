"""The results of experiments as tables and sentences on standard output."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from afda.cli import console
from afda.cli.tables import format_percent

if TYPE_CHECKING:
    from afda.experiments.bench import Row
    from afda.experiments.demo import Demo
    from afda.experiments.reproduce import Plan, Reproduction
    from afda.experiments.sweep import Job
    from afda.experiments.tune import SearchResult

MOST_TRIALS = 10
"""Points of a search that are shown."""


def build_reproduction_table(result: "Reproduction") -> Table:
    """Return our results beside the paper's as a table; cells that were not run are empty."""
    from afda.experiments.tables import format_rows

    table = Table(title=result.plan.title, title_justify="left", caption=result.about, caption_justify="left")
    header, *lines = format_rows(result.rows)
    for column in header:
        table.add_column(column, overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table


def list_reproduction(result: "Reproduction") -> dict[str, Any]:
    """Return what `afda reproduce --json` prints."""
    plan = result.plan
    return {
        "name": plan.name,
        "profile": plan.profile,
        "runs": len(plan.jobs),
        "runs_done": plan.runs_done,
        "runs_reused": plan.runs_reused,
        "rows": [asdict(row) for row in result.rows],
        "files": [str(path) for path in result.files],
    }


def list_plan(plan: "Plan") -> dict[str, Any]:
    """Return what `afda reproduce --dry-run --json` prints."""
    runs = [
        {
            "run": str(job.run.path),
            "steps": job.recipe.steps,
            "finished": job.state == "done",
            "reused": job.reused is not None,
        }
        for job in plan.jobs
    ]
    return {"name": plan.name, "profile": plan.profile, "runs_reused": plan.runs_reused, "runs": runs}


def build_plan_table(jobs: "Sequence[Job]") -> Table:
    """Return the runs of a sweep before it begins as a table."""
    finished = sum(job.state == "done" for job in jobs)
    table = Table(title=f"Runs: {len(jobs)}, finished: {finished}", title_justify="left")
    table.add_column("run", overflow="fold")
    table.add_column("updates", justify="right")
    table.add_column("")
    for job in jobs:
        state = "reused" if job.reused is not None else "finished" if job.state == "done" else ""
        table.add_row(str(job.run.path), f"{job.recipe.steps:,}", state)
    return table


def build_trials_table(result: "SearchResult") -> Table:
    """Return the ten best points of a search as a table, and how far to trust their order."""
    title = f"Best points by validation error, of {len(result.trials)} tried"
    table = Table(title=title, title_justify="left", caption=result.caution, caption_justify="left")
    for path in (*result.trials[0].settings, "validation error"):
        table.add_column(path, justify="right")
    for trial in result.trials[:MOST_TRIALS]:
        table.add_row(*(f"{value:g}" for value in trial.settings.values()), format_percent(trial.val_error))
    return table


def list_search(result: "SearchResult") -> dict[str, Any]:
    """Return what `afda tune --json` prints."""
    best = result.trials[0]
    return {
        "best": best.settings,
        "val_error": best.val_error,
        "labels": result.recipe.labels,
        "trials": len(result.trials),
        "files": [str(path) for path in result.files],
    }


def print_search(result: "SearchResult") -> None:
    """Print the best points of a search and how to train with the best."""
    console.out.print(build_trials_table(result))
    console.print_result(f"Wrote {result.best}, {result.page}. Train with --recipe {result.best}.")


def build_bench_table(rows: "Sequence[Row]", machine: dict[str, Any]) -> Table:
    """Return the rows of a benchmark as a table, with the machine that they were measured on."""
    from afda.experiments.bench import MEANINGS
    from afda.experiments.bench.steps import NETS

    precision = machine["precision"]
    apart = {net: f" (VAT in {precision[f'{net}/vat']})" for net in NETS if precision[f"{net}/vat"] != precision[net]}
    precisions = ", ".join(f"{net} in {precision[net]}{apart.get(net, '')}" for net in NETS)
    threads = f"{machine['threads']} thread{'s' if machine['threads'] > 1 else ''}"
    about = f"{machine['device_name']}, {threads}, {precisions}, torch {machine['torch']}"
    table = Table(title=about, title_justify="left", title_style="")
    for heading in ("", "median", "range"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(row.name, f"{row.value:.3g}", f"{row.spread:.2g}", MEANINGS[row.name.partition("/")[0]])
    return table


def print_demo(result: "Demo") -> None:
    """Print the comparison of the demonstration."""
    title = f"Digits, {result.labels} labels, {result.seeds} seeds: error on 500 test images"
    table = Table(title=title, title_justify="left")
    for column in ("", "error %", "each seed", "MMD² × 10³", "seconds"):
        table.add_column(column, no_wrap=True)
    for way, row in result.ways.items():
        spread = "" if row.test_error_std is None else f" ± {row.test_error_std:.2f}"
        each = ", ".join(f"{error:.1f}" for error in row.test_errors)
        table.add_row(way, f"{row.test_error:.2f}{spread}", each, f"{1000 * row.mmd2:.2f}", f"{row.seconds:.0f}")
    console.out.print(table)
    console.print_result(f"The runs are in {result.folder}; open {result.report} to compare them.")
