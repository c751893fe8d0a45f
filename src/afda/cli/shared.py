"""What several commands share: options, the data, the machine, the recipe."""

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from afda.errors import UserError

AsJson = Annotated[bool, typer.Option("--json", help="print only JSON")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Precision = Annotated[
    str,
    typer.Option(
        help="float32, bfloat16, or auto: bfloat16 where this machine has it and the training gains enough by it"
    ),
]
AtOnce = Annotated[
    int | None,
    typer.Option("--jobs", help="runs at a time; by default one per GPU or, without, per core", min=1),
]
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
    str,
    typer.Argument(
        metavar="DATA",
        help="a folder of images, a .csv or .parquet table, an .npz file; or digits, svhn, cifar10",
    ),
]
Size = Annotated[int | None, typer.Option(help="side in pixels that images are brought to", min=8, max=1024)]


def default_recipe(data: Any, device: str) -> str:
    """The recipe for a data set when none is named: short on a CPU, the paper's on a GPU."""
    if data.source == "digits":
        return "digits-demo"
    if data.source in ("svhn", "cifar10"):
        return f"{data.source}-ablation" + ("-cpu" if device == "cpu" else "")
    return "own-vectors" if len(data.train.shape) == 1 else "own-images"


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
