"""Reproduce a table or figure of the paper: plan its runs, train them, and write our numbers beside the paper's."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from afda.data import load
from afda.errors import UserError, unknown
from afda.experiments.cells import PROFILES, Cell, make_file_name, select_cells
from afda.experiments.comparison import Row, RunStore, build_rows, describe_precisions, describe_rows
from afda.experiments.evidence import RunRecord, load_records
from afda.experiments.sweep import LOCAL, Job, Machines, Progress, ignore_progress, run_sweep
from afda.experiments.tables import write_table
from afda.machine.files import check_writable
from afda.recipe import Recipe
from afda.runs.directory import Run, describe_differences

DEFAULT_FOLDER = Path("reproduced")


@dataclass(frozen=True)
class PlannedRun:
    """A run of a table: its cell, its recipe and its directory below the folder of the sweep."""

    cell: Cell
    recipe: Recipe
    path: str


@dataclass(frozen=True)
class Reuse:
    """The runs of another folder that count as finished, and those of the same name that do not."""

    source: Path | None = None
    found: Mapping[str, RunRecord] = field(default_factory=dict)
    """By the path of the planned run."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """How a run of the same path differs, by that path."""


@dataclass(frozen=True)
class Plan:
    """A table or figure with the runs that it needs."""

    name: str
    profile: str
    seeds: int
    cells: list[Cell]
    settings: list[str]
    precision: str
    folder: Path
    """The user's folder of runs and tables, with that of the settings."""
    title: str
    """The name of the table's files."""
    jobs: list[Job]
    reuse: Reuse

    @property
    def store(self) -> RunStore:
        """The finished runs."""
        return RunStore(self.folder, self.reuse.found)

    @property
    def runs_done(self) -> int:
        return sum(job.state == "done" for job in self.jobs)

    @property
    def runs_reused(self) -> int:
        return sum(job.reused is not None for job in self.jobs)

    @property
    def is_figure(self) -> bool:
        return self.name.startswith("figure")

    def describe_reuse(self) -> list[str]:
        """Return sentences on the runs that are reused, and on those that cannot be and why."""
        texts = []
        if self.reuse.source is not None:
            texts.append(f"{self.runs_reused} of {len(self.jobs)} runs are reused from {self.reuse.source}.")
        if self.reuse.refused:
            path, difference = next(iter(self.reuse.refused.items()))
            count = len(self.reuse.refused)
            texts.append(
                f"{count} run{'s' if count > 1 else ''} of {self.reuse.source} with another recipe or precision "
                f"{'are' if count > 1 else 'is'} not reused, the first {path} ({difference})."
            )
        return texts

    def describe_state(self) -> list[str]:
        """Return sentences on unfinished and reused runs and on their precision, for the text of the table."""
        texts = [f"Unfinished: {self.runs_done} of {len(self.jobs)} runs."] if self.runs_done < len(self.jobs) else []
        if self.runs_reused:
            texts.append(f"Reused from {self.reuse.source}: {self.runs_reused} of {len(self.jobs)} runs.")
        precision = describe_precisions(job.precision for job in self.jobs if job.state == "done")
        return [*texts, precision] if precision else texts


@dataclass(frozen=True)
class Reproduction:
    """The rows of a reproduced table or figure, the text above them, and the files that were written."""

    plan: Plan
    rows: list[Row]
    about: str
    files: list[Path]


def plan_reproduction(
    name: str,
    *,
    profile: str = "cpu",
    seeds: int | None = None,
    only: str = "",
    labels: int | None = None,
    on_digits: bool = False,
    settings: Sequence[str] = (),
    precision: str = "auto",
    out: Path = DEFAULT_FOLDER,
    reuse: Path | None = None,
) -> Plan:
    """Return the runs that a table or figure needs, and which of them are finished. Nothing is written.

    `seeds` is 3 by default, for figure-5 1. Runs with `settings` have a folder of that name in `out`. `reuse` is a
    folder of runs or a runs.jsonl; its runs count as finished where recipe and precision agree.
    """
    if profile not in PROFILES:
        raise unknown("profile", profile, PROFILES)
    if name.startswith("figure"):
        from afda.experiments.figures import load_pyplot

        load_pyplot()  # if it is missing, say so now and not after hours
    seeds = seeds or (1 if name == "figure-5" else 3)
    chosen = select_cells(name, only, labels, on_digits)
    below = ",".join(sorted(settings)).replace(os.sep, "_")
    runs = plan_runs(name, chosen, profile, seeds, settings)
    folder = out / below if below else out
    reused = match_runs(runs, reuse, f"{below}/" if below else "", precision)
    jobs = make_jobs(runs, folder, reused.found)
    for job in jobs:
        if precision != "auto" and job.precision not in (None, precision):
            raise UserError(f"{job.run.path} is a run in {job.precision}; choose another --out.")
    title = make_file_name(name, only, labels, on_digits)
    return Plan(name, profile, seeds, chosen, list(settings), precision, folder, title, jobs, reused)


def plan_runs(
    name: str, chosen: Sequence[Cell], profile: str, seeds: int, settings: Sequence[str] = ()
) -> list[PlannedRun]:
    """Return a run per cell and seed, all cells of the first seed first.

    A sweep that is stopped early has then few seeds of all cells, not all seeds of a few cells. Labels that the data do
    not have are refused here.
    """
    for setting in settings:
        if (path := setting.partition("=")[0].strip()) in ("seed", *Cell.__dataclass_fields__):
            raise UserError(f"Each cell of {name} has its own {path}, which --set cannot change.")
    sets = {data: load(data) for data in sorted({cell.data for cell in chosen})}
    runs = []
    for seed in range(seeds):
        for cell in chosen:
            recipe = cell.make_recipe(sets[cell.data], profile, seed, settings)
            recipe.split_of(sets[cell.data])
            runs.append(PlannedRun(cell, recipe, cell.path(profile, seed)))
    return runs


def make_jobs(runs: Sequence[PlannedRun], folder: Path, reused: Mapping[str, RunRecord] | None = None) -> list[Job]:
    """Return a job per run; those that are finished in the folder or reused are done already."""
    known = reused or {}
    return [
        Job(run.recipe, Run(folder / run.path), run.cell.data, run.cell.options, reused=known.get(run.path))
        for run in runs
    ]


def match_runs(runs: Sequence[PlannedRun], source: Path | None, prefix: str, precision: str) -> Reuse:
    """Find the planned runs among the records of a source.

    A record matches if its path ends with the run's, below the folder of the settings (`prefix`), and if recipe and
    precision agree. A record of exactly that path which disagrees is listed as refused.
    """
    if source is None:
        return Reuse()
    by_ending: dict[str, list[RunRecord]] = {}
    for record in load_records(source):
        by_ending.setdefault("/".join(record.path.split("/")[-3:]), []).append(record)
    found: dict[str, RunRecord] = {}
    refused: dict[str, str] = {}
    for run in runs:
        wanted = prefix + run.path
        candidates = [r for r in by_ending.get(run.path, []) if r.path == wanted or r.path.endswith(f"/{wanted}")]
        for record in sorted(candidates, key=lambda record: record.path != wanted):
            difference = compare_record(record, run.recipe, precision)
            if not difference:
                found[run.path] = record
                refused.pop(run.path, None)
                break
            if record.path == wanted:
                refused[run.path] = difference
    return Reuse(source, found, refused)


def compare_record(record: RunRecord, recipe: Recipe, precision: str) -> str:
    """Return how a record differs from a planned run, or an empty string."""
    if difference := describe_differences(record.recipe, recipe):
        return difference
    if precision != "auto" and record.precision not in (None, precision):
        return f"precision: {record.precision} there, {precision} now"
    return ""


def run_reproduction(
    plan: Plan,
    *,
    machines: Machines = LOCAL,
    at_once: int | None = None,
    threads: int = 1,
    command: str = "afda reproduce",
    progress: Progress = ignore_progress,
) -> Reproduction:
    """Train the runs that are not finished, then write the table and, for a figure, the figure.

    A sweep that is stopped by an exception leaves the table of the runs that are done; the same call continues it.
    Runs that fail do not stop the others: see `sweep.check_failures` with the plan's jobs. `command` is the command
    line that the files mention.
    """
    check_writable(plan.folder)
    if plan.is_figure:
        from afda.experiments.illustrate import check_drawable

        check_drawable(plan.name, plan.cells, plan.store, plan.profile)
    rows: list[Row] = []
    about, files = "", []
    place, figure = (plan.folder / plan.profile / name for name in ("tables", "figures"))
    picture = figure / f"{plan.title}.png"
    try:
        run_sweep(plan.jobs, at_once, threads, machines, plan.precision, progress)
    finally:  # a page keeps the earlier picture until it is drawn again
        rows = build_rows(plan.name, plan.cells, plan.store, plan.profile, plan.seeds)
        about = describe_rows(plan.name, rows, plan.profile, plan.settings, plan.describe_state())
        if plan.runs_done:
            files = write_table(rows, place, plan.title, about, command, picture)
    if plan.is_figure and any(job.state == "done" and not job.recipe.seed for job in plan.jobs):
        from afda.experiments.illustrate import draw_figure

        drawn = draw_figure(plan.name, plan.cells, plan.store, plan.profile, plan.seeds, figure / plan.title)
        files = write_table(rows, place, plan.title, about, command, picture) + drawn
    return Reproduction(plan, rows, about, files)
