"""`afda train` and the look before it, `afda check`."""

import json
import shlex
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from afda.cli.shared import (
    AsJson,
    Data,
    Device,
    Precision,
    Size,
    Threads,
    chosen_runtime,
    default_recipe,
    loaded,
    print_json,
    requested_recipe,
    stop_on_signals,
)
from afda.errors import UserError


def train(
    data: Data,
    labels: Annotated[
        int | None,
        typer.Option(
            help="keep only this many labels, chosen by the seed; by default the recipe's number or all", min=1
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="see `afda list methods`; a+b combines two; default the recipe's, mostly vat+entropy"),
    ] = None,
    align: Annotated[str | None, typer.Option(help="adversarial (default), reversal, mmd or none")] = None,
    net: Annotated[str | None, typer.Option(help="see `afda list nets`")] = None,
    steps: Annotated[int | None, typer.Option(help="number of updates", min=1)] = None,
    minutes: Annotated[
        float | None, typer.Option(help="instead of --steps: as many updates as this machine can do in this time")
    ] = None,
    size: Size = None,
    seed: Annotated[int | None, typer.Option(help="decides the split and all randomness", min=0)] = None,
    validation: Annotated[
        bool | None, typer.Option(help="hold out a validation set as large as the labelled set")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="a name from `afda list recipes`, or a recipe.json")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="path=value: any field of the recipe; may be repeated")
    ] = None,
    more_labels: Annotated[
        list[Path] | None,
        typer.Option(help="a .csv with more labels, such as a filled-in report-label-next.csv; may be repeated"),
    ] = None,
    baseline: Annotated[
        bool | None,
        typer.Option(help="also train on the labels alone, to compare; by default with own data, some of it held out"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="the run's directory; by default under runs/")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the run in --out")] = False,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    processes: Annotated[
        int | None,
        typer.Option(help="processes on this machine that share every batch; torchrun starts them on several", min=1),
    ] = None,
    no_test: Annotated[bool, typer.Option("--no-test", help="leave the test set shut, also at the end")] = False,
    snapshots: Annotated[
        bool,
        typer.Option("--snapshots", help="keep the model now and then, and test all of them after the last update"),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress, no table")] = False,
    as_json: AsJson = False,
) -> None:
    """Train one classifier. With no --method it is AFDA: VAT with entropy, plus adversarial alignment."""
    from afda import display, fit, workers
    from afda.baseline import follows, without_unlabelled
    from afda.budget import steps_within
    from afda.runs import BASELINE, Run

    started = time.monotonic()
    check_train_options(
        resume=resume, overwrite=overwrite, snapshots=snapshots, no_test=no_test, minutes=minutes, steps=steps
    )
    if labels is not None and more_labels:
        raise UserError("--more-labels adds to all the labels there are, so --labels cannot stand beside it.")
    place = workers.place(processes, minutes is not None)
    quiet = quiet or place.rank > 0  # the first process alone speaks
    begun = Run(out) if resume and out is not None and (out / "recipe.json").exists() else None
    before = asked_before(begun)
    no_test, snapshots = no_test or before.get("no_test", False), snapshots or before.get("snapshots", False)
    baseline = before.get("baseline") if baseline is None else baseline
    threads = threads or (before.get("threads") or None if place.count == 1 else None)  # they decide the last bits
    machine = chosen_runtime(device, precision, place.threads(threads))
    images = loaded(data, quiet, begun, more_labels, side=size)
    images = replace(images, test=None) if no_test else images
    if begun is not None and (trained_on := begun.recipe().data) != images.name:
        raise UserError(f"The run in {out} is of {trained_on!r}, not of {images.name!r}; choose another --out.")
    if recipe is None and begun is not None:
        recipe = str(begun.path / "recipe.json")  # a run is continued with its own settings
    name = recipe or default_recipe(images, machine.device.type)
    options = {"labels": labels, "net": net, "steps": steps, "seed": seed, "validation": validation}
    changes = [f"{key}={json.dumps(value)}" for key, value in options.items() if value is not None]
    made = requested_recipe(name, images, method, align, labels, changes + (settings or []))
    path = out or Path("runs") / f"{images.name}-{made.title}-{made.labels or 'all'}-seed{made.seed}"
    if resume and not (path / "recipe.json").exists():
        raise UserError(f"There is no run to resume in {path}; leave --resume out to begin one.")
    compared = follows(made, images) if baseline is None else baseline and made.uses_unlabelled
    if minutes is not None:
        todo = [made, without_unlabelled(made)] if compared else [made]
        made = made.with_settings([f"steps={steps_within(minutes, todo, images, machine, started)}"])

    stop = stop_on_signals()
    again = f"afda train {shlex.quote(data)} --out {shlex.quote(str(path))} --resume{place.option}"

    def follow(training: Any, lines: Any) -> None:
        recipe = training.recipe
        if not quiet and recipe is made:
            display.introduce(recipe, images, name if begun is None else None, training.runtime)
        elif not quiet:
            display.err.print("Now on the labels alone, to compare.", highlight=False)
        try:
            display.follow(lines, recipe, training.step, quiet)
        except KeyboardInterrupt:
            display.complain(f"stopped after {training.step} of {recipe.steps} updates; continue with: {again}")
            sys.exit(130)

    trained = partial(
        fit.train,
        data=images,
        on=machine,
        resume=resume,
        overwrite=overwrite,
        snapshots=snapshots,
        asked={"no_test": no_test, "snapshots": snapshots, "baseline": compared},
        stop=stop,
        follow=follow,
    )
    finished = begun is not None and begun.finished
    with workers.joined(place, machine.device, again):
        trained(made, out=path)
        if compared:
            precision = asked_before(Run(path)).get("precision") or precision  # or it would be that which suits it best
            trained(without_unlabelled(made), out=path / BASELINE, on=replace(machine, precision=precision))
    if place.rank == 0:
        result = outcome(path, compared, replace(machine, precision="float32"))  # as in a report
        if as_json or not quiet:
            print_json(result) if as_json else display.trained(result, f"{images.name}, {made.title}", finished)


def outcome(path: Path, compared: bool, machine: Any) -> dict[str, Any]:
    """The result of a finished run, beside that of the labels alone."""
    from afda.findings import verdict_in_words
    from afda.runs import BASELINE, Run

    result = {"run": str(path), **Run(path).result()}
    if compared:
        alone = Run(path / BASELINE).result()
        result["baseline"] = {key: alone[key] for key in ("test_error", "val_error", "mmd2", "seconds")}
        result["verdict"] = verdict_in_words(path, machine)
    return result


def check_train_options(
    *,
    resume: bool,
    overwrite: bool,
    snapshots: bool,
    no_test: bool,
    minutes: float | None,
    steps: int | None,
) -> None:
    """Refuse options that contradict each other."""
    if snapshots and no_test:
        raise UserError("--snapshots are there to be tested after the last update; leave out --no-test.")
    if resume and overwrite:
        raise UserError("--resume continues a run and --overwrite replaces it; choose one of them.")
    if minutes is not None and not 0 < minutes < float("inf"):
        raise UserError(f"--minutes takes a positive number, not {minutes:g}.")
    if minutes is not None and (steps is not None or resume):
        raise UserError("--minutes decides the number of updates, so --steps and --resume cannot stand beside it.")


def asked_before(begun: Any) -> dict[str, Any]:
    """What was asked for when a run began, which holds to its end."""
    if begun is None or not (begun.path / "environment.json").exists():
        return {}
    before = begun.read_json("environment.json")
    return before if before.get("processes") == 1 else {**before, "threads": None}


def check(
    data: Data,
    labels: Annotated[int | None, typer.Option(help="as for train", min=1)] = None,
    method: Annotated[str | None, typer.Option(help="as for train")] = None,
    align: Annotated[str | None, typer.Option(help="as for train")] = None,
    size: Size = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Look before training: what is there, and what is wrong.

    Also how long it will take. Exit code 2 if it cannot work.
    """
    from afda import check as look
    from afda import display

    files = look.files_found(data)
    try:
        images = loaded(data, as_json, side=size)
    except UserError as error:
        if not files:
            raise
        print_json({"files": files, "problem": str(error)}) if as_json else display.check_files(files)
        raise
    machine = chosen_runtime(device, precision, threads)
    made = requested_recipe(default_recipe(images, machine.device.type), images, method, align, labels, [])
    same = look.duplicates(images)
    problem = look.problem_with(made, images)
    found = {
        **look.described(images),
        "files": files or None,
        "duplicates": same,
        "warnings": look.warnings(images, same, files),
        "expected": None if problem else look.expected(made, images, machine),
        "problem": problem,
    }
    print_json(found) if as_json else display.check_result(found)
    if problem:
        raise UserError(problem)
