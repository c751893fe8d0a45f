"""The demonstration, the paper's experiments and the benchmark: `afda demo`, `reproduce`, `tune` and `bench`."""

import contextlib
import os
import shlex
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from afda.cli.options import (
    Address,
    AlignName,
    AsJson,
    CpusPerRun,
    Data,
    Device,
    GpusPerRun,
    Jobs,
    Labels,
    MethodName,
    On,
    Precision,
    RecipeName,
    Threads,
    check_precision,
    select_machines,
    select_runtime,
    stop_on_signals,
)
from afda.errors import UserError


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the runs; finished ones are not repeated.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(help="Labelled sets and initialisations to average over.", min=1)] = 3,
    labels: Annotated[int, typer.Option(help="Number of digits that keep their label.", min=10)] = 50,
    steps: Annotated[int | None, typer.Option(help="Updates per run; default: the recipe's.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Compare supervised-only training with AFDA on the digits.

    The digits come with the package; the comparison takes about two minutes.
    """
    from afda.cli import console
    from afda.cli import experiment_tables as tables
    from afda.cli.sweep_progress import follow_sweep
    from afda.experiments.demo import run_demo

    with follow_sweep(f"Digits, {labels} labels") as progress:
        result = run_demo(out, seeds, labels, steps, progress)
    if as_json:
        console.print_json(asdict(result))
    else:
        tables.print_demo(result)


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `afda list tables`.")],
    profile: Annotated[
        str, typer.Option(help="paper: full length, for a GPU; cpu: narrow networks and short training.")
    ] = "cpu",
    seeds: Annotated[
        int | None,
        typer.Option(help="Labelled sets and initialisations per cell; default: 3, or 1 for figure-5.", min=1),
    ] = None,
    only: Annotated[str, typer.Option(help="Run some cells only, such as method=vat,labels=250,labels=500.")] = "",
    labels: Annotated[int | None, typer.Option(help="Replace the paper's number of labels.", min=1)] = None,
    on_digits: Annotated[
        bool,
        typer.Option("--on-digits", help="Use the embedded digits instead of the paper's data, with 20 to 100 labels."),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="path=value: a field of every recipe; the results go to a folder of that name."),
    ] = None,
    at_once: Jobs = None,
    on: On = "here",
    address: Address = None,
    cpus_per_run: CpusPerRun = 1,
    gpus_per_run: GpusPerRun = None,
    precision: Annotated[
        str, typer.Option(help="Precision of every run: float32, bfloat16, or auto (float32 on a CPU).")
    ] = "auto",
    out: Annotated[Path, typer.Option(help="Folder of the runs and tables; finished runs are not repeated.")] = Path(
        "reproduced"
    ),
    reuse: Annotated[
        Path | None, typer.Option(help="A folder or runs.jsonl whose finished runs count, such as results.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and which are finished, and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce a table or figure of the paper.

    Writes our numbers beside the paper's. The runs form a sweep that can be interrupted and continued.
    """
    from afda.cli import console
    from afda.cli import experiment_tables as tables
    from afda.cli.sweep_progress import follow_sweep
    from afda.experiments.reproduce import plan_reproduction, run_reproduction
    from afda.experiments.sweep import check_failures

    check_precision(precision)
    plan = plan_reproduction(
        name,
        profile=profile,
        seeds=seeds,
        only=only,
        labels=labels,
        on_digits=on_digits,
        settings=settings or (),
        precision=precision,
        out=out,
        reuse=reuse,
    )
    for note in plan.describe_reuse():
        console.print_note(note)
    if dry_run:
        if as_json:
            console.print_json(tables.list_plan(plan))
        else:
            console.out.print(tables.build_plan_table(plan.jobs))
        return
    title = f"{name}, {profile} profile, {plan.seeds} seed{'s' if plan.seeds > 1 else ''}"
    with (
        select_machines(on, address, cpus_per_run, gpus_per_run) as machines,
        follow_sweep(title) as progress,
    ):
        result = run_reproduction(
            plan,
            machines=machines,
            at_once=at_once,
            threads=cpus_per_run,
            command=shlex.join(["afda", *sys.argv[1:]]),
            progress=progress,
        )
    if as_json:
        console.print_json(tables.list_reproduction(result))
    elif result.files:
        console.out.print(tables.build_reproduction_table(result))
        console.print_result(f"Wrote {', '.join(map(str, result.files))}.")
    check_failures(plan.jobs)


def tune(
    data: Data,
    labels: Labels = None,
    method: MethodName = None,
    align: AlignName = None,
    recipe: RecipeName = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="path=value: a field of every trial's recipe; can be repeated.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Points of the grid to run now; default: all that are left.", min=1)
    ] = None,
    seeds: Annotated[int, typer.Option(help="Splits to average the validation error over.", min=1)] = 1,
    at_once: Jobs = None,
    on: On = "here",
    address: Address = None,
    cpus_per_run: CpusPerRun = 1,
    gpus_per_run: GpusPerRun = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the search, which can be shared and continued.")] = None,
    as_json: AsJson = False,
) -> None:
    """Search the paper's hyper-parameter grids on a validation set.

    The test set is not opened.
    """
    from afda.cli import console
    from afda.cli import experiment_tables as tables
    from afda.cli.progress import DecodingProgress
    from afda.data import load
    from afda.experiments.tune import check_settings, run_search
    from afda.recipes import choose_default_recipe
    from afda.training.request import make_recipe

    check_settings(settings or ())
    with DecodingProgress() as decoding:
        images = load(data, progress=decoding.update)
    with select_machines(on, address, cpus_per_run, gpus_per_run) as machines:
        name = recipe or choose_default_recipe(images, machines.device)
        fewer = [f"labels={labels}"] if labels is not None else []
        stop = threading.Event()
        stop_on_signals(stop)
        result = run_search(
            images,
            data,
            make_recipe(name, images, method, align, labels, fewer + (settings or [])),
            out,
            trials=trials,
            seeds=seeds,
            at_once=at_once,
            threads=cpus_per_run,
            machines=machines,
            stop=stop,
            tell=console.print_status,
        )
    if as_json:
        console.print_json(tables.list_search(result))
    else:
        tables.print_search(result)


def bench(
    context: typer.Context,
    only: Annotated[
        str, typer.Option(help="Measure only rows whose names begin like this, such as step_efficiency/cpu.")
    ] = "",
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Measure training speed against a bare PyTorch loop.

    Also measures prediction, decoding, MMD^2 and start-up, in a quarter of an hour or more. The values are medians,
    with the interquartile range; docs/explanation/performance.md explains each. `afda bench quality` measures errors.
    """
    if context.invoked_subcommand is not None:
        if (only, device, precision, threads, as_json) != ("", "auto", "auto", None, False):
            raise UserError(f"Options of `afda bench {context.invoked_subcommand}` follow that word; move them there.")
        return
    from afda.cli import console
    from afda.cli import experiment_tables as tables
    from afda.cli.progress import task_progress
    from afda.experiments.bench import Row, list_tasks
    from afda.experiments.bench.steps import list_precisions

    runtime = select_runtime(device, precision, threads)
    tasks, rows = list_tasks(runtime, only), list[Row]()
    try:
        with task_progress(len(tasks)) as progress:
            for done, (name, measure) in enumerate(tasks.items()):
                progress(name, done)
                measured = list(measure())
                rows += measured
                if not measured:
                    console.print_note(f"{name} cannot be measured on this machine.")
    finally:  # also after an interruption
        machine = {**asdict(runtime.describe()), "precision": list_precisions(runtime)}
        if as_json:
            console.print_json({"machine": machine, "rows": [row._asdict() for row in rows]})
        else:
            console.out.print(tables.build_bench_table(rows, machine))


def quality(
    sets: Annotated[str, typer.Option(help="Sets to run, such as iris,digits; default: all.")] = "",
    labels: Annotated[str, typer.Option(help="Numbers of labels per class.")] = "2,5,20",
    seeds: Annotated[int, typer.Option(help="Labelled sets and test sets to average over.", min=1, max=100)] = 5,
    methods: Annotated[str, typer.Option(help="Columns to run, such as ours,logistic; default: all.")] = "",
    tuning: Annotated[
        bool,
        typer.Option("--tuning", help="Use the seeds and sets for choosing settings, which are never reported."),
    ] = False,
    jobs: Annotated[int | None, typer.Option(help="Processes of one thread each; default: all cores.", min=1)] = None,
    out: Annotated[
        Path | None, typer.Option(help="A .jsonl file for every result, so that a run can be continued.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare test errors on many small data sets.

    The columns are method="auto", AFDA, supervised-only training, and what a user would try instead in scikit-learn.
    """
    from afda.cli import console
    from afda.cli import quality_tables as tables
    from afda.cli.progress import task_progress
    from afda.experiments.quality.cells import Cell, Failure, Score, check_failures, run_cells
    from afda.experiments.quality.plan import plan_cells

    plan = plan_cells(sets, labels, seeds, methods, tuning)
    for note in plan.notes:
        console.print_note(note)
    results = dict[Cell, Score | Failure]()
    try:
        with (
            task_progress(len(plan.cells)) as progress,
            contextlib.closing(run_cells(plan.cells, out, jobs or os.cpu_count() or 1)) as running,
        ):
            for result in running:
                results[result.cell] = result
                progress(str(result.cell), len(results))
    finally:  # also after an interruption
        ordered = [results[cell] for cell in plan.cells if cell in results]
        scores = [result for result in ordered if isinstance(result, Score)]
        if as_json:
            console.print_json(tables.list_quality(scores))
        else:
            tables.print_quality(scores)
    check_failures([result for result in ordered if isinstance(result, Failure)], len(plan.cells))
