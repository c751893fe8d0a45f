"""Options that several commands share, and what they select."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from afda.errors import UserError

if TYPE_CHECKING:
    from afda.experiments.ray_cluster import Cluster
    from afda.experiments.sweep import Machines
    from afda.machine.runtime import Runtime

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, ...")]
Precision = Annotated[
    str, typer.Option(help="float32, bfloat16, or auto: bfloat16 where the machine supports it and gains speed by it.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", help="Runs at a time; default: one per GPU or CPU core.", min=1)]
Threads = Annotated[int | None, typer.Option(help="CPU threads; default: all cores.", min=1, max=1024)]
On = Annotated[str, typer.Option("--on", help="Where to run: here (processes of this machine) or ray (a Ray cluster).")]
Address = Annotated[
    str | None,
    typer.Option(help="HOST:PORT of the Ray cluster; default: the cluster of this machine, or a new one on it."),
]
CpusPerRun = Annotated[int, typer.Option(help="CPUs, and threads, of each run.", min=1, max=1024)]
GpusPerRun = Annotated[
    float | None, typer.Option(help="GPUs of each run with --on ray; default: one if there are any.", min=0)
]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder of images, a .csv or .parquet table, an .npz file, or a name from `afda list data`.",
    ),
]
FinishedRun = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a finished run.")]
Size = Annotated[int | None, typer.Option(help="Side in pixels to which images are resized.", min=8, max=1024)]
GroupBy = Annotated[
    str | None,
    typer.Option(
        help="folder: keep images of the same sub-folder, such as frames of a video, on one side of the split."
    ),
]
Labels = Annotated[
    int | None,
    typer.Option(help="Keep only this many labels, chosen by the seed; default: the recipe's number, or all.", min=1),
]
MethodName = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="A name from `afda list methods`, a+b for two of them, or auto to compare several on the labels. "
        "Default: auto with own data, else the recipe's.",
    ),
]
AlignName = Annotated[
    str | None,
    typer.Option("--align", help="A name from `afda list alignments`, or none. Default: adversarial."),
]
RecipeName = Annotated[
    str | None, typer.Option("--recipe", help="A name from `afda list recipes`, or the path of a recipe.json.")
]


def select_runtime(device: str, precision: str, threads: int | None) -> "Runtime":
    """Return the device and precision that the options name."""
    from afda.machine import runtime

    check_precision(precision)
    return runtime.select_runtime(device, precision, threads)


def check_precision(precision: str) -> None:
    """Refuse an unknown precision."""
    from afda.errors import unknown
    from afda.machine.runtime import PRECISIONS

    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)


def check_place(on: str, address: str | None) -> None:
    """Refuse an unknown place for --on, and an address without a cluster."""
    from afda.errors import unknown

    if on not in ("here", "ray"):
        raise unknown("place for --on", on, ("here", "ray"))
    if on == "here" and address is not None:
        raise UserError("--address is that of a Ray cluster; add --on ray.")


@contextlib.contextmanager
def open_cluster(address: str | None, cpus: int, gpus: float | None) -> "Iterator[Cluster]":
    """Connect to a Ray cluster, and leave it at the end."""
    from afda.experiments.ray_cluster import Cluster

    cluster = Cluster(address, cpus, gpus)
    with contextlib.redirect_stdout(sys.stderr):  # Ray prints messages about lost machines
        try:
            yield cluster
        finally:
            cluster.disconnect()


@contextlib.contextmanager
def select_machines(on: str, address: str | None, cpus: int, gpus: float | None) -> "Iterator[Machines]":
    """Select where runs are trained: processes of this machine, or a Ray cluster."""
    from afda.experiments.sweep import LOCAL

    check_place(on, address)
    if on == "here":
        yield LOCAL
    else:
        with open_cluster(address, cpus, gpus) as cluster:
            yield cluster


def stop_on_signals(stop: threading.Event) -> None:
    """Let Ctrl-C and SIGTERM set an event; a second signal ends the program at once."""

    def request_stop(number: int, _: Any) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGINT, request_stop)
    signal.signal(signal.SIGTERM, request_stop)
