"""`afda train` and `afda check`."""

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afda.cli.options import (
    AlignName,
    AsJson,
    Data,
    Device,
    GroupBy,
    Labels,
    MethodName,
    Precision,
    RecipeName,
    Size,
    Threads,
    stop_on_signals,
)
from afda.errors import UserError

if TYPE_CHECKING:
    from afda.training.session import TrainCallbacks


def train(
    data: Data,
    labels: Labels = None,
    method: MethodName = None,
    align: AlignName = None,
    net: Annotated[str | None, typer.Option(help="A name from `afda list nets`.")] = None,
    steps: Annotated[int | None, typer.Option(help="Number of updates.", min=1)] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Train for this long instead of --steps, measured on this machine.")
    ] = None,
    size: Size = None,
    group_by: GroupBy = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the split and of all randomness.", min=0)] = None,
    validation: Annotated[
        bool | None, typer.Option(help="Hold out a validation set as large as the labelled set.")
    ] = None,
    recipe: RecipeName = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="path=value: any field from `afda list settings`; can be repeated."),
    ] = None,
    more_labels: Annotated[
        list[Path] | None,
        typer.Option(help="A .csv with more labels, such as a completed report-label-next.csv; can be repeated."),
    ] = None,
    baseline: Annotated[
        bool | None,
        typer.Option(
            help="Also train on the labelled images alone, to compare; --no-baseline also skips the cross-validation "
            "that compares a --method with it on own data."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the run; default: a new one in runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    processes: Annotated[
        int | None,
        typer.Option(
            help="Processes on this machine that share every batch; use torchrun for several machines.", min=1
        ),
    ] = None,
    no_test: Annotated[bool, typer.Option("--no-test", help="Do not open the test set, not even at the end.")] = False,
    snapshots: Annotated[
        bool,
        typer.Option("--snapshots", help="Keep the model at intervals, and test all of them after the last update."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print neither progress nor results.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a classifier from labelled and unlabelled images.

    With own data the default is --method auto, which compares several by cross-validation on the labels; with built-in
    data sets it is AFDA: VAT and entropy with adversarial alignment.
    """
    from afda.cli import console, tables
    from afda.training.request import TrainRequest
    from afda.training.session import TrainingStopped, run_training

    request = TrainRequest(
        data=data,
        labels=labels,
        method=method,
        align=align,
        net=net,
        steps=steps,
        minutes=minutes,
        size=size,
        group_by=group_by,
        seed=seed,
        validation=validation,
        recipe=recipe,
        settings=tuple(settings or ()),
        more_labels=tuple(more_labels or ()),
        baseline=baseline,
        out=out,
        resume=resume,
        overwrite=overwrite,
        device=device,
        precision=precision,
        threads=threads,
        processes=processes,
        no_test=no_test,
        snapshots=snapshots,
    )
    stop = threading.Event()
    try:
        with follow_training(quiet, stop) as callbacks:
            outcome = run_training(request, callbacks=callbacks, stop=stop)
    except TrainingStopped as stopped:
        console.print_note(str(stopped))
        sys.exit(130)
    if outcome is not None and as_json:
        console.print_json(outcome.to_json())
    elif outcome is not None and not quiet:
        tables.print_outcome(outcome)


@contextmanager
def follow_training(quiet: bool, stop: threading.Event) -> "Iterator[TrainCallbacks]":
    """Show the progress of a training and its baseline on standard error; signals set `stop` once it has begun."""
    from afda.cli import console
    from afda.cli.progress import DecodingProgress, TrainingProgress, TrialProgress
    from afda.runs.log import LogLine
    from afda.runs.selection import Selection
    from afda.training.select import TrialDone
    from afda.training.session import TrainCallbacks, TrainingStart

    listen = partial(stop_on_signals, stop)  # until then Ctrl-C ends the command at once
    if quiet:
        yield TrainCallbacks(on_ready=listen)
        return
    with ExitStack() as stack:
        decoding = stack.enter_context(DecodingProgress())
        shown: TrainingProgress | None = None
        trials: TrialProgress | None = None

        def show_start(start: TrainingStart) -> None:
            nonlocal shown
            stack.close()  # ends the bar of what came before
            if start.is_baseline:
                console.print_status("Training the supervised-only baseline.")
            for warning in start.warnings:
                console.print_warning(warning)
            for note in start.notes:
                console.print_note(note)
            shown = stack.enter_context(TrainingProgress(start.recipe, start.step))

        def show_line(line: LogLine) -> None:
            if shown is not None:
                shown.update(line)

        def show_comparison(selection: Selection, notes: tuple[str, ...], warnings: tuple[str, ...]) -> None:
            nonlocal trials
            stack.close()
            for warning in warnings:
                console.print_warning(warning)
            for note in notes:
                console.print_note(note)
            trials = stack.enter_context(TrialProgress(selection))

        def show_trial(trial: TrialDone) -> None:
            if trials is not None:
                trials.update(trial)

        yield TrainCallbacks(
            on_ready=listen,
            on_decode=decoding.update,
            on_compare=show_comparison,
            on_trial=show_trial,
            on_start=show_start,
            on_log=show_line,
        )


def check(
    data: Data,
    labels: Labels = None,
    method: MethodName = None,
    align: AlignName = None,
    size: Size = None,
    group_by: GroupBy = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Inspect a data set before training.

    Counts images and classes, finds unreadable files, duplicates and tiny classes, and estimates the training time.
    Exit code 2 means that one cannot train on the data.
    """
    from afda.cli import console, tables
    from afda.cli.options import check_precision
    from afda.cli.progress import DecodingProgress
    from afda.training.check import check_data

    check_precision(precision)
    with DecodingProgress(quiet=as_json) as decoding:
        result = check_data(
            data,
            labels=labels,
            method=method,
            align=align,
            size=size,
            group_by=group_by,
            device=device,
            precision=precision,
            threads=threads,
            on_decode=decoding.update,
        )
    if as_json:
        console.print_json(result.to_json())
    else:
        tables.print_check(result)
    if result.problem is not None:
        raise UserError(result.problem)
