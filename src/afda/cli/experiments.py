"""The demonstration, the paper's experiments and the benchmark."""

import contextlib
import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from afda.cli.shared import (
    Address,
    AsJson,
    AtOnce,
    CpusPerRun,
    Data,
    Device,
    GpusPerRun,
    On,
    Precision,
    Threads,
    check_precision,
    chosen_machines,
    chosen_runtime,
    default_recipe,
    loaded,
    print_json,
    requested_recipe,
    stop_on_signals,
)
from afda.errors import RunFailed, UserError


def demo(
    out: Annotated[Path, typer.Option(help="folder for the runs; finished ones in it are not run again")] = Path(
        "demo"
    ),
    seeds: Annotated[int, typer.Option(help="labelled sets and initialisations to average over", min=1)] = 3,
    labels: Annotated[int, typer.Option(help="how many digits keep their label", min=10)] = 50,
    steps: Annotated[int | None, typer.Option(help="updates per run; by default the recipe's", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Supervised-only beside AFDA on the digits, in two minutes."""
    from afda.demo import demonstrate, show

    result = demonstrate(out, seeds, labels, steps)
    print_json(result) if as_json else show(result)


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="table-1 to table-7, figure-1, -2, -4 to -7, or digits")],
    profile: Annotated[str, typer.Option(help="paper: full length, for a GPU; cpu: narrow and short")] = "cpu",
    seeds: Annotated[
        int | None, typer.Option(help="labelled sets and initialisations per cell: 3, for figure-5 1", min=1)
    ] = None,
    only: Annotated[str, typer.Option(help="some cells, such as method=vat,labels=250,labels=500")] = "",
    labels: Annotated[int | None, typer.Option(help="instead of the paper's number of labels", min=1)] = None,
    on_digits: Annotated[
        bool, typer.Option("--on-digits", help="the embedded digits instead of the paper's data, with 20 to 100 labels")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="path=value: a field of every recipe, whose results have a folder of that name"),
    ] = None,
    at_once: AtOnce = None,
    on: On = "here",
    address: Address = None,
    cpus_per_run: CpusPerRun = 1,
    gpus_per_run: GpusPerRun = None,
    precision: Annotated[
        str, typer.Option(help="of every run: float32, bfloat16, or auto, which is float32 on a CPU")
    ] = "auto",
    out: Annotated[Path, typer.Option(help="folder of the runs and tables; finished cells are not run again")] = Path(
        "results"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list the runs and which are finished, and stop")] = False,
    as_json: AsJson = False,
) -> None:
    """A table or figure of the paper, ours beside the paper's.

    It is a sweep that can be cut off and continued.
    """
    from afda import display
    from afda.disk import check_writable
    from afda.errors import unknown
    from afda.reproduce import PROFILES, cells, file_name, planned, remarks, table, written
    from afda.sweep import sweep

    if name.startswith("figure"):
        from afda.report.figures import pyplot

        pyplot()  # if it is missing, better now than after hours

    if profile not in PROFILES:
        raise unknown("profile", profile, PROFILES)
    check_precision(precision)
    if settings:  # runs that differ from the profile's have a folder of their own
        out = out / ",".join(sorted(settings)).replace(os.sep, "_")
    seeds = seeds or (1 if name == "figure-5" else 3)
    chosen = cells(name, only, labels, on_digits)
    jobs = planned(name, chosen, out, profile, seeds, settings or [])
    for job in jobs:
        if precision != "auto" and job.precision not in (None, precision):
            raise UserError(f"{job.run.path} is a run in {job.precision}; choose another --out.")
    if dry_run:
        runs = [{"run": str(job.run.path), "steps": job.recipe.steps, "finished": job.state == "done"} for job in jobs]
        print_json({"name": name, "profile": profile, "runs": runs}) if as_json else display.out.print(
            display.planned_table(jobs)
        )
        return
    check_writable(out)
    if name.startswith("figure"):
        from afda.illustrate import check_drawable, illustrated

        check_drawable(name, chosen, out, profile)
    called, by = file_name(name, only, labels, on_digits), shlex.join(["afda", *sys.argv[1:]])
    place, picture, paths = out / profile / "tables", out / profile / "figures" / f"{called}.png", []
    with chosen_machines(on, address, cpus_per_run, gpus_per_run) as machines:
        try:
            with contextlib.closing(sweep(jobs, at_once, cpus_per_run, machines, precision)) as states:
                display.follow_jobs(states, f"{name}, {profile} profile, {seeds} seed{'s' if seeds > 1 else ''}")
        finally:  # also of a sweep that is cut off; an earlier picture stays in it until it is drawn anew
            rows = table(name, chosen, out, profile, seeds)
            about = remarks(name, rows, profile, jobs, settings or [])
            if any(job.state == "done" for job in jobs):
                paths = written(rows, place, called, about, by, picture)
    failed = [job for job in jobs if job.state == "failed"]
    if name.startswith("figure") and any(job.state == "done" and not job.recipe.seed for job in jobs):
        drawn = illustrated(name, chosen, out, profile, seeds, called)
        paths = written(rows, place, called, about, by, picture) + drawn
    if as_json:
        done = sum(job.state == "done" for job in jobs)
        counts = {"runs": len(jobs), "runs_done": done}
        print_json({"name": name, "profile": profile, **counts, "rows": rows, "files": [str(p) for p in paths]})
    elif paths:
        display.out.print(display.reproduction_table(called, rows, about))
        display.out.print(f"Written: {', '.join(map(str, paths))}", highlight=False)
    if failed:
        raise RunFailed(
            f"{len(failed)} of {len(jobs)} runs failed, the first ({failed[0].run.path}): {failed[0].problem}"
        )


def tune(
    data: Data,
    labels: Annotated[int | None, typer.Option(help="keep only this many labels", min=1)] = None,
    method: Annotated[str | None, typer.Option(help="see `afda list methods`; default the recipe's")] = None,
    align: Annotated[str | None, typer.Option(help="adversarial (default), reversal, mmd or none")] = None,
    recipe: Annotated[str | None, typer.Option(help="a name from `afda list recipes`, or a recipe.json")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="path=value: a field of every trial's recipe; may be repeated")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="points of the grid to run now; by default all that are left", min=1)
    ] = None,
    seeds: Annotated[int, typer.Option(help="splits to average the validation error over", min=1)] = 1,
    at_once: AtOnce = None,
    on: On = "here",
    address: Address = None,
    cpus_per_run: CpusPerRun = 1,
    gpus_per_run: GpusPerRun = None,
    out: Annotated[Path | None, typer.Option(help="folder of the search, to be shared and continued")] = None,
    as_json: AsJson = False,
) -> None:
    """The paper's tuning protocol: its grids, on a validation set. The test set is not opened."""
    import math

    from afda import display
    from afda.disk import write_whole
    from afda.tune import check_labels, doubt, finished, grid, page, study_in, tuned, with_point

    for setting in settings or []:
        if (path := setting.partition("=")[0].strip()) in ("seed", "validation"):
            raise UserError(f"A search decides on {path} itself: it takes the seeds 0, 1, ... as many as --seeds says.")
    images, failures = loaded(data), []
    with chosen_machines(on, address, cpus_per_run, gpus_per_run) as machines:
        name = recipe or default_recipe(images, machines.device)
        fewer = [f"labels={labels}"] if labels is not None else []
        made = requested_recipe(name, images, method, align, labels, fewer + (settings or []))
        check_labels(images, made)
        folder = out or Path("tuning") / f"{images.name}-{made.title}-{made.labels}"
        study = study_in(folder, made, seeds)
        left = math.prod(len(values) for values in grid(made).values()) - len(finished(study))
        if left > 0:
            running = min(trials or left, left)
            display.err.print(f"{left} points of the grid are left; running {running}.", highlight=False)
            failures = tuned(
                study,
                made,
                data,
                folder,
                trials=running,
                seeds=seeds,
                at_once=at_once or machines.slots(cpus_per_run),
                threads=cpus_per_run,
                machines=machines,
                stop=stop_on_signals(),
                tell=partial(display.err.print, highlight=False),
            )
    points = finished(study)
    if not points:
        raise RunFailed(f"Every trial failed, the first with: {failures[0]}" if failures else "No trial was run.")
    best = folder / "best.json"
    write_whole(best, with_point(made, points[0][0]).to_json().encode())
    caution = doubt(points, images, made, seeds)
    files = [best, page(points, made, folder, caution)]
    if as_json:
        print_json(
            {
                "best": points[0][0],
                "val_error": points[0][1],
                "labels": made.labels,
                "trials": len(points),
                "files": [str(f) for f in files],
            }
        )
    else:
        display.out.print(display.trials_table(points, caution))
        display.out.print(f"Written: {', '.join(map(str, files))}. Train with --recipe {best}.", highlight=False)


def bench(
    only: Annotated[
        str, typer.Option(help="the beginning of the names of what is to be measured, such as step_efficiency/cpu")
    ] = "",
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """This machine's speed against its own limit.

    Training steps, prediction, decoding, MMD^2 and starting: a quarter of an hour or more. Medians, nearly all of
    ratios, with the range of the middle half of the rounds; docs/performance.md says what each is.
    """
    from afda import display
    from afda.bench import tasks
    from afda.bench.steps import precisions

    machine = chosen_runtime(device, precision, threads)
    todo, rows = tasks(machine, only), []
    try:
        for row in display.follow_bench(todo):
            rows.append(row)
    finally:  # also of a benchmark that is cut off
        about = machine.describe() | {"precision": precisions(machine)}
        if as_json:
            print_json({"machine": about, "rows": [row._asdict() for row in rows]})
        else:
            display.out.print(display.bench_table(rows, about))
