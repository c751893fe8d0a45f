"""What is done with a trained model: evaluate, predict, report, export."""

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

from afda.cli.shared import (
    Address,
    AsJson,
    Device,
    On,
    Precision,
    Threads,
    check_precision,
    chosen_machines,
    chosen_runtime,
    print_json,
)
from afda.errors import UserError


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the directory of a finished run")],
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="other labelled data; by default the run's sealed test set")
    ] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """The error of a trained model on its test set or other data."""
    from afda import display
    from afda.evaluate import evaluated

    result = evaluated(run, data, chosen_runtime(device, precision, threads))
    print_json(result) if as_json else display.out.print(display.evaluation_table(result))


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the directory of a finished run")],
    images: Annotated[
        list[str],
        typer.Argument(metavar="IMAGES", help="folders, image files, .txt lists, .csv or .parquet tables, .npz arrays"),
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
    """The class of every image, with all probabilities.

    Also its confidence, and whether it is unlike the training images.
    """
    from collections import Counter

    from afda import display, predict
    from afda.disk import write_whole
    from afda.inference import load_model
    from afda.runs import as_csv

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
    left_out = predict.skipped_beside(out)
    if skipped:
        write_whole(left_out, as_csv(("path", "reason"), skipped).encode(errors="surrogateescape"))
    else:
        left_out.unlink(missing_ok=True)  # of the predictions that were replaced
    result = {"file": str(out), "images": counts.total(), "classes": dict(counts.most_common()), "unlike": unlike}
    result |= {
        "skipped": len(skipped),
        "skipped_file": str(left_out) if skipped else None,
        "calibrated": model.temperature != 1,
    }
    print_json(result) if as_json else display.predictions(result)


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS", help="directories of finished runs; several are compared")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="the page; by default RUN/report.html, or report.html for several runs"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the page if it is there")] = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """One page about finished runs, to explore.

    Errors, curves, a map of the features, mistakes, and what to label next.
    """
    from afda import display
    from afda.findings import report as write

    machine = chosen_runtime(device, "float32", threads)
    with display.err.status("reading") as status:
        files = write(runs, machine, out, overwrite=overwrite, tell=lambda text: status.update(display.shown(text)))
    if as_json:
        print_json({"report": str(files[0]), "files": [str(f) for f in files]})
    else:
        display.out.print(f"Written: {', '.join(map(str, files))}", highlight=False)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the directory of a finished run")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the file to write")] = Path("model.onnx"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the file if it is there")] = False,
    as_json: AsJson = False,
) -> None:
    """A trained model as an ONNX file.

    Raw images in, probabilities and features out.
    """
    from afda import display
    from afda.export import exported

    with display.err.status("exporting"):
        result = exported(run, out, overwrite=overwrite)
    if as_json:
        print_json(result)
    else:
        display.out.print(f"Written: {out}. It takes {result['input']}.", highlight=False)
