"""Commands for a trained model: `afda evaluate`, `predict`, `report` and `export`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from afda.cli.options import (
    Address,
    AsJson,
    Device,
    FinishedRun,
    On,
    Precision,
    Threads,
    check_place,
    check_precision,
    open_cluster,
    select_runtime,
)


def evaluate(
    run: FinishedRun,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="Other labelled data; default: the test set of the run.")
    ] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Measure the error of a trained model.

    It is measured on the test set of the run, or on other labelled data.
    """
    from afda.cli import console, tables
    from afda.runs.evaluate import evaluate_run

    result = evaluate_run(run, data, select_runtime(device, precision, threads))
    if as_json:
        console.print_json(result.to_dict())
    else:
        console.out.print(tables.build_evaluation_table(result))


def predict(
    run: FinishedRun,
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGES", help="Folders, image files, .txt lists of them, .csv or .parquet tables, or .npz files."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The .csv, .parquet or .jsonl file to write.")] = Path(
        "predictions.csv"
    ),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    on: On = "here",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Predict the classes of images.

    Writes class, confidence and all probabilities of every image, and whether it is unlike the training images.
    """
    from afda.cli import console, tables
    from afda.cli.progress import count_progress
    from afda.runs.predict import predict_to_file

    check_place(on, address)
    check_precision(precision)
    with count_progress("images classified", quiet=as_json) as progress:
        write = partial(predict_to_file, run, images, out, overwrite=overwrite, progress=progress)
        if on == "here":
            result = write(runtime=select_runtime(device, precision, threads))
        else:
            with open_cluster(address, threads or 1, {"auto": None, "cpu": 0}.get(device, 1)) as cluster:
                result = write(predictor=partial(cluster.predict, precision=precision, threads=threads or 1))
    if as_json:
        console.print_json(result.to_dict())
    else:
        tables.print_predictions(result)


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS", help="Directories of finished runs; several are compared.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The page to write; default: RUN/report.html, or report.html for several runs."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the page if it exists.")] = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Write an HTML page about finished runs.

    It shows errors, training curves, an embedding of the features, mistakes, and which images to label next.
    """
    from afda.cli import console
    from afda.cli.progress import show_status
    from afda.report.write import write_report

    runtime = select_runtime(device, "float32", threads)
    with show_status("reading") as progress:
        files = write_report(runs, runtime, out, overwrite=overwrite, progress=progress)
    if as_json:
        console.print_json({"report": str(files[0]), "files": [str(file) for file in files]})
    else:
        console.print_result(f"Wrote {', '.join(map(str, files))}.")


def export(
    run: FinishedRun,
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write.")] = Path("model.onnx"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a trained model as an ONNX file.

    It takes raw images and returns probabilities and features.
    """
    from afda.cli import console
    from afda.cli.progress import show_status
    from afda.runs.export import export_run

    with show_status("exporting"):
        result = export_run(run, out, overwrite=overwrite)
    if as_json:
        console.print_json(result.to_dict())
    else:
        console.print_result(f"Wrote {result.file}. Input: {result.metadata.input}.")
