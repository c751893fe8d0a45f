"""The command line. Heavy imports wait inside the commands, so that --help answers at once."""

import contextlib
import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from afda.errors import RunFailed, UserError, printable

app = typer.Typer(
    name="afda",
    help="Train an image classifier from a few labels and many unlabelled images.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="print only JSON")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Precision = Annotated[str, typer.Option(help="auto, float32 or bfloat16")]
AtOnce = Annotated[int | None, typer.Option("--jobs", help="runs at a time; by default one per core", min=1)]
Threads = Annotated[int | None, typer.Option(help="CPU threads; by default all cores", min=1, max=1024)]
On = Annotated[str, typer.Option("--on", help="here: this machine's processes; ray: a Ray cluster's machines")]
Address = Annotated[
    str | None,
    typer.Option(help="of the Ray cluster, as HOST:PORT; by default the one this machine is in, or a new one on it"),
]
CpusPerRun = Annotated[int, typer.Option(help="CPUs, and threads, that each run gets", min=1, max=1024)]
GpusPerRun = Annotated[
    float | None, typer.Option(help="with --on ray: GPUs that each run gets; by default one if there are any", min=0)
]
Data = Annotated[
    str, typer.Argument(help="a folder of images, a .csv or .parquet table, an .npz file; or digits, svhn, cifar10")
]
Size = Annotated[int | None, typer.Option(help="side in pixels that images are brought to", min=8, max=1024)]


def version(asked: bool) -> None:
    if asked:
        from afda import __version__

        typer.echo(f"afda {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="print the version")] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="folder for the runs; finished ones in it are not run again")] = Path(
        "demo"
    ),
    seeds: Annotated[int, typer.Option(help="labelled sets and initialisations to average over", min=1)] = 3,
    labels: Annotated[int, typer.Option(help="how many digits keep their label", min=10)] = 50,
    steps: Annotated[int | None, typer.Option(help="updates per run; by default the recipe's", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Supervised-only beside AFDA on the embedded digits, in less than two minutes."""
    from afda.demo import demonstrate, show

    result = demonstrate(out, seeds, labels, steps)
    print_json(result) if as_json else show(result)


@app.command()
def train(
    data: Data,
    labels: Annotated[int | None, typer.Option(help="keep only this many labels, chosen by the seed", min=1)] = None,
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
        typer.Option(help="also train on the labels alone, to compare; by default with a person's own data"),
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
    from afda import display, workers
    from afda.baseline import without_unlabelled
    from afda.budget import steps_within
    from afda.processes import told
    from afda.recipe import Recipe
    from afda.runs import BASELINE, Run, open_run
    from afda.training import assist, begin, check_data, fit, prepared

    started = time.monotonic()
    check_train_options(resume, overwrite, snapshots, no_test, minutes, steps, labels is not None and bool(more_labels))
    place = workers.place(processes, minutes is not None)
    quiet = quiet or place.rank > 0  # the first process alone speaks
    machine = chosen_runtime(device, precision, place.threads(threads))
    begun = Run(out) if resume and out is not None and (out / "recipe.json").exists() else None
    images = loaded(data, quiet, begun, more_labels, side=size)
    no_test, snapshots, baseline = asked_before(begun, no_test, snapshots, baseline)
    if no_test:
        images = replace(images, test=None)
    if recipe is None and begun is not None:
        recipe = str(begun.path / "recipe.json")  # a run is continued with its own settings
    name = recipe or default_recipe(images, machine.device.type)
    options = {"labels": labels, "net": net, "steps": steps, "seed": seed, "validation": validation}
    changes = [f"{key}={json.dumps(value)}" for key, value in options.items() if value is not None]
    made = requested_recipe(name, images, method, align, labels, changes + (settings or []))
    path = out or Path("runs") / f"{images.name}-{made.title}-{made.labels or 'all'}-seed{made.seed}"
    if resume and not (path / "recipe.json").exists():
        raise UserError(f"There is no run to resume in {path}; leave --resume out to begin one.")
    compared = made.uses_unlabelled and (os.path.isabs(images.source) if baseline is None else baseline)
    if minutes is not None:
        todo = [made, without_unlabelled(made)] if compared else [made]
        made = made.with_settings([f"steps={steps_within(minutes, todo, images, machine, started)}"])

    stop = stop_on_signals()
    again = f"afda train {shlex.quote(data)} --out {shlex.quote(str(path))} --resume{place.option}"

    def trained(recipe: Recipe, folder: Path) -> None:
        training = begin(recipe, images, machine)  # what cannot begin leaves what is in --out alone
        if place.rank > 0:
            assist(training, stop)
            return
        run = open_run(folder, recipe, resume=resume, overwrite=overwrite)
        if run.finished:
            check_data(run, images)
            told()  # nothing to the other processes
        else:
            if not quiet and folder == path:
                display.introduce(recipe, images, name if begun is None else None)
            elif not quiet:
                display.err.print("Now on the labels alone, to compare.", highlight=False)
            prepared(training, run, {"no_test": no_test, "snapshots": snapshots, "baseline": compared})
            try:
                display.follow(fit(training, run, snapshots=snapshots, stop=stop), recipe, training.step, quiet)
            except KeyboardInterrupt:
                display.complain(f"stopped after {training.step} of {recipe.steps} updates; continue with: {again}")
                raise typer.Exit(130) from None

    with workers.joined(place, machine.device, again):
        trained(made, path)
        if compared:
            trained(without_unlabelled(made), path / BASELINE)
    if place.rank == 0:
        result = outcome(path, compared, machine)
        if as_json or not quiet:
            print_json(result) if as_json else display.trained(result, f"{images.name}, {made.title}")


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
    resume: bool,
    overwrite: bool,
    snapshots: bool,
    no_test: bool,
    minutes: float | None,
    steps: int | None,
    more_and_fewer: bool,
) -> None:
    """Refuse options that contradict each other."""
    if snapshots and no_test:
        raise UserError("--snapshots are there to be tested after the last update; leave out --no-test.")
    if resume and overwrite:
        raise UserError("--resume continues a run and --overwrite replaces it; choose one of them.")
    if more_and_fewer:
        raise UserError("--more-labels adds to all the labels there are, so --labels cannot stand beside it.")
    if minutes is not None and not 0 < minutes < float("inf"):
        raise UserError(f"--minutes takes a positive number, not {minutes:g}.")
    if minutes is not None and (steps is not None or resume):
        raise UserError("--minutes decides the number of updates, so --steps and --resume cannot stand beside it.")


def asked_before(begun: Any, no_test: bool, snapshots: bool, baseline: bool | None) -> tuple[bool, bool, bool | None]:
    """What was asked for when a run began holds to its end."""
    if begun is None or not (begun.path / "environment.json").exists():
        return no_test, snapshots, baseline
    before = begun.read_json("environment.json")
    no_test, snapshots = no_test or before.get("no_test", False), snapshots or before.get("snapshots", False)
    return no_test, snapshots, before.get("baseline") if baseline is None else baseline


def requested_recipe(
    name: str, images: Any, method: str | None, align: str | None, labels: int | None, changes: list[str]
) -> Any:
    """The recipe of this name, or in this file, with the changes asked for."""
    from afda.recipe import Recipe
    from afda.recipes import recipe as named

    if name.endswith(".json") or os.sep in name:
        parts = (("method", method), ("align", align))
        changes = [f"{key}={json.dumps(value)}" for key, value in parts if value is not None] + changes
        made = Recipe.read(Path(name)).with_settings(changes)
    else:
        made = named(name, images, method, align or "adversarial", labels).with_settings(changes)
    if made.data != images.name:
        raise UserError(
            f"The recipe is for the data set {made.data!r}, not {images.name!r}; set it with --set data={images.name}."
        )
    return made


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="the directory of a finished run")],
    data: Annotated[
        str | None, typer.Argument(help="other labelled data; by default the run's sealed test set")
    ] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """The error of a trained model on its sealed test set, or on other labelled data."""
    from afda import display
    from afda.evaluate import evaluated

    result = evaluated(run, data, chosen_runtime(device, precision, threads))
    print_json(result) if as_json else display.out.print(display.evaluation_table(result))


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="table-1 to table-7, figure-1, -2, -4 to -7, or digits")],
    profile: Annotated[str, typer.Option(help="paper: full length, for a GPU; cpu: narrow and short")] = "cpu",
    seeds: Annotated[int, typer.Option(help="labelled sets and initialisations per cell", min=1)] = 3,
    only: Annotated[str, typer.Option(help="some cells, such as method=vat,labels=250")] = "",
    labels: Annotated[int | None, typer.Option(help="instead of the paper's number of labels", min=1)] = None,
    on_digits: Annotated[
        bool, typer.Option("--on-digits", help="the embedded digits instead of the paper's data")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="path=value: a field of every recipe; may be repeated")
    ] = None,
    at_once: AtOnce = None,
    on: On = "here",
    address: Address = None,
    cpus_per_run: CpusPerRun = 1,
    gpus_per_run: GpusPerRun = None,
    out: Annotated[Path, typer.Option(help="folder of the runs and tables; finished cells are not run again")] = Path(
        "results"
    ),
    as_json: AsJson = False,
) -> None:
    """A table or figure of the paper as a sweep that can be cut off and continued: ours beside the paper's."""
    from afda import display
    from afda.errors import unknown
    from afda.reproduce import PROFILES, cells, planned, table, written
    from afda.sweep import sweep

    if profile not in PROFILES:
        raise unknown("profile", profile, PROFILES)
    if settings:  # runs that differ from the profile's have a folder of their own
        out = out / ",".join(sorted(settings)).replace(os.sep, "_")
    chosen = cells(name, only, labels, on_digits)
    jobs = planned(name, chosen, out, profile, seeds, settings or [])
    with (
        chosen_machines(on, address, cpus_per_run, gpus_per_run) as machines,
        contextlib.closing(sweep(jobs, at_once, cpus_per_run, machines)) as states,
    ):
        jobs = display.follow_jobs(states, f"{name}, {profile} profile, {seeds} seeds")
    rows = table(name, chosen, out, profile, seeds)
    drawn: list[Path] = []
    if name.startswith("figure"):
        from afda.illustrate import illustrated

        drawn = illustrated(name, chosen, out, profile, seeds)
    figure = next((path for path in drawn if path.suffix == ".png"), None)
    paths = written(name, rows, out, profile, shlex.join(["afda", *sys.argv[1:]]), figure) + drawn
    if as_json:
        print_json({"name": name, "profile": profile, "rows": rows, "files": [str(p) for p in paths]})
    else:
        display.out.print(display.reproduction_table(name, rows, profile))
        display.out.print(f"Written: {', '.join(map(str, paths))}", highlight=False)
    failed = [job for job in jobs if job.state == "failed"]
    if failed:
        raise RunFailed(
            f"{len(failed)} of {len(jobs)} runs failed, the first ({failed[0].run.path}): {failed[0].problem}"
        )


@app.command()
def tune(
    data: Data,
    labels: Annotated[int | None, typer.Option(help="keep only this many labels", min=1)] = None,
    method: Annotated[str, typer.Option(help="see `afda list methods`")] = "vat+entropy",
    align: Annotated[str, typer.Option(help="adversarial, reversal, mmd or none")] = "adversarial",
    recipe: Annotated[str | None, typer.Option(help="a name from `afda list recipes`")] = None,
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
    from afda.recipes import recipe as named
    from afda.runs import Run
    from afda.tune import finished, grid, page, study_in, tuned, with_point

    images = loaded(data)
    made = named(recipe or default_recipe(images, "cpu"), images, method, align, labels).with_settings(settings or [])
    folder = out or Path("tuning") / f"{images.name}-{made.title}-{made.labels or 'all'}"
    study = study_in(folder, made)
    left = math.prod(len(values) for values in grid(made).values()) - len(finished(study))
    if left > 0:
        display.err.print(f"{left} points of the grid are left; running {min(trials or left, left)}.", highlight=False)
        with chosen_machines(on, address, cpus_per_run, gpus_per_run) as machines:
            tuned(
                study,
                made,
                data,
                folder,
                trials=min(trials or left, left),
                seeds=seeds,
                at_once=at_once or machines.slots(cpus_per_run),
                threads=cpus_per_run,
                machines=machines,
                stop=stop_on_signals(),
            )
    points = finished(study)
    if not points:
        raise RunFailed("Every trial failed; see the runs in the folder's trials/.")
    best = folder / "best.json"
    Run(folder).write(best.name, with_point(made, points[0][0]).to_json().encode())
    files = [best, page(points, made, folder)]
    if as_json:
        print_json(
            {"best": points[0][0], "val_error": points[0][1], "trials": len(points), "files": [str(f) for f in files]}
        )
    else:
        display.out.print(display.trials_table(points))
        display.out.print(f"Written: {', '.join(map(str, files))}. Train with --recipe {best}.", highlight=False)


@app.command()
def check(
    data: Data,
    labels: Annotated[int | None, typer.Option(help="as for train", min=1)] = None,
    size: Size = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Look before training: what is there, what is wrong, how long it will take. Exit code 2 if it cannot work."""
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
    made = requested_recipe(default_recipe(images, machine.device.type), images, None, None, labels, [])
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


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="the directory of a finished run")],
    images: Annotated[
        list[str], typer.Argument(help="folders, image files, .txt lists, .csv or .parquet tables, .npz arrays")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="a .csv, .parquet or .jsonl file")] = Path("predictions.csv"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the file if it is there")] = False,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    on: On = "here",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """The class of every image, its confidence and all probabilities, and whether it is unlike the training images."""
    from collections import Counter

    from afda import display, predict
    from afda.inference import load_model
    from afda.runs import Run, as_csv

    model, shape = load_model(run)
    skipped: list[tuple[str, str]] = []
    counts: Counter[str] = Counter()
    unlike = 0
    tell_skipped = lambda path, reason: skipped.append((path, reason))  # noqa: E731
    todo = predict.items(images, tell_skipped)

    def rows_on(machines: Any) -> Any:
        if on == "ray":
            check_precision(precision)
            return machines.predicted(run, todo, tell_skipped, precision=precision, threads=threads or 1)
        machine = chosen_runtime(device, precision, threads)
        machine.place(model)
        return predict.predicted(model, shape, todo, machine, tell_skipped)

    with (
        chosen_machines(on, address, threads or 1, {"auto": None, "cpu": 0}.get(device, 1)) as machines,
        contextlib.closing(rows_on(machines)) as rows,
        predict.table(out, overwrite) as write,
        display.counting("images classified", as_json) as tell,
    ):
        for batch in predict.in_batches(rows):
            write(batch)
            counts.update(row["label"] for row in batch)
            unlike += sum(bool(row["unlike_training"]) for row in batch)
            tell(counts.total())
        if not counts:
            first = f"; the first: {skipped[0][0]} ({skipped[0][1]})" if skipped else ""
            raise UserError(f"There is no readable image in {', '.join(images)}{first}.")
    left_out = out.with_name(f"{out.stem}-skipped.csv") if skipped else None
    if left_out is not None:
        Run(out.parent).write(left_out.name, as_csv(("path", "reason"), skipped).encode(errors="surrogateescape"))
    result = {"file": str(out), "images": counts.total(), "classes": dict(counts.most_common()), "unlike": unlike}
    result |= {
        "skipped": len(skipped),
        "skipped_file": left_out and str(left_out),
        "calibrated": model.temperature != 1,
    }
    print_json(result) if as_json else display.predictions(result)


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="methods, nets, alignments, data, recipes, or all")] = "all",
    as_json: AsJson = False,
) -> None:
    """What there is, with one line each."""
    from afda.display import catalogue_tables, out
    from afda.errors import unknown
    from afda.listing import catalogue

    found = catalogue()
    if what != "all" and what not in found:
        raise unknown("list", what, [*found, "all"])
    shown = found if what == "all" else {what: found[what]}
    if as_json:
        print_json(shown)
    else:
        for table in catalogue_tables(shown):
            out.print(table)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="directories of finished runs; several are compared")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="the page; by default RUN/report.html, or report.html for several runs"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the page if it is there")] = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """One page about finished runs: errors, curves, a map of the features, mistakes, and what to label next."""
    from afda import display
    from afda.findings import report as write

    machine = chosen_runtime(device, "float32", threads)
    with display.err.status("reading") as status:
        files = write(runs, machine, out, overwrite=overwrite, tell=lambda text: status.update(display.shown(text)))
    if as_json:
        print_json({"report": str(files[0]), "files": [str(f) for f in files]})
    else:
        display.out.print(f"Written: {', '.join(map(str, files))}", highlight=False)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="the directory of a finished run")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the file to write")] = Path("model.onnx"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the file if it is there")] = False,
    as_json: AsJson = False,
) -> None:
    """A trained model as an ONNX file: raw images in, probabilities and features out."""
    from afda import display
    from afda.export import exported

    with display.err.status("exporting"):
        result = exported(run, out, overwrite=overwrite)
    if as_json:
        print_json(result)
    else:
        display.out.print(f"Written: {out}. It takes {result['input']}.", highlight=False)


@app.command()
def bench(
    only: Annotated[
        str, typer.Option(help="the beginning of the names of what is to be measured, such as step_efficiency/cpu")
    ] = "",
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """This machine's speed against its own limit: training steps, prediction, decoding, MMD^2 and starting."""
    from afda import display
    from afda.bench import tasks

    machine = chosen_runtime(device, precision, threads)
    rows = display.follow_bench(tasks(machine, only), as_json)
    if as_json:
        print_json({"machine": machine.describe(), "rows": [row._asdict() for row in rows]})
    else:
        display.out.print(display.bench_table(rows, machine.describe()))


def default_recipe(data: Any, device: str) -> str:
    """The recipe for a data set when none is named: short on a CPU, the paper's on a GPU."""
    if data.source == "digits":
        return "digits-demo"
    if data.source in ("svhn", "cifar10"):
        return f"{data.source}-ablation" + ("-cpu" if device == "cpu" else "")
    return "own-vectors" if len(data.train.shape) == 1 else "own-images"


def loaded(data: str, quiet: bool = False, begun: Any = None, more_labels: list[Path] | None = None, **how: Any) -> Any:
    """The data set, with a bar while its files are decoded; for a run that has begun, as it was then."""
    from afda import display
    from afda.data import load

    more: Sequence[str] = [str(path) for path in more_labels or ()]
    if begun is not None and (begun.path / "environment.json").exists():
        before = begun.read_json("environment.json")
        shape = before.get("shape")
        how["shape"], more = tuple(shape) if shape else None, more or before.get("more_labels") or ()
    with display.decoding(quiet) as progress:
        return load(data, more_labels=more, progress=progress, **how)


def chosen_runtime(device: str, precision: str, threads: int | None) -> Any:
    from afda.runtime import runtime

    check_precision(precision)
    return runtime(device, precision, threads)


def check_precision(precision: str) -> None:
    from afda.errors import unknown
    from afda.runtime import PRECISIONS

    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)


@contextlib.contextmanager
def chosen_machines(on: str, address: str | None, cpus: int, gpus: float | None) -> Iterator[Any]:
    """Where runs go."""
    from afda.errors import unknown
    from afda.sweep import HERE

    if on not in ("here", "ray"):
        raise unknown("place for --on", on, ("here", "ray"))
    if on == "ray":
        from afda.cluster import Cluster

        cluster = Cluster(address, cpus, gpus)
        with contextlib.redirect_stdout(sys.stderr):  # Ray prints what it has to tell of lost machines
            try:
                yield cluster
            finally:
                cluster.leave()
    elif address is not None:
        raise UserError("--address is that of a Ray cluster; add --on ray.")
    else:
        yield HERE


def stop_on_signals() -> threading.Event:
    """An event that Ctrl-C or SIGTERM sets; a second signal ends the program at once."""
    stop = threading.Event()

    def request(number: int, _: Any) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGINT, request)
    signal.signal(signal.SIGTERM, request)
    return stop


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Threads that spin while they wait make a step thirty times slower when other programs want the cores too.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except UserError as error:
        fail(2, error)
    except RunFailed as error:
        fail(1, error)
    except KeyboardInterrupt:
        fail(130, "interrupted.")
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        fail(
            1,
            "Out of memory; use smaller batches (--set unlabelled_batch=32) or a narrower net (--set net.width=0.25).",
        )


def fail(code: int, message: object) -> None:
    print(f"afda: {printable(str(message))}", file=sys.stderr)
    sys.exit(code)
