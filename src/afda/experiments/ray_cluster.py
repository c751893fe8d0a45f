"""Runs and predictions on the machines of a Ray cluster, with the same results as on one machine.

A run's task works in a temporary folder of its machine and sends back every file that changes, checkpoints included. So
the machines need not share a disk, and only the program that started the sweep writes to its folder. If a machine is
lost, its run continues on another one from the files that were sent back.
"""

import contextlib
import functools
import logging
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from afda import __version__
from afda.errors import RunFailed, UserError
from afda.experiments.sweep import Process, build_command
from afda.machine.runtime import Runtime, select_runtime
from afda.registry import list_names
from afda.runs.directory import CHECKPOINT, PREVIOUS, WORKING_FILES, Run
from afda.runs.inputs import Item
from afda.runs.model import Model, load_model
from afda.runs.predict import BATCH, Prediction, iterate_batches, predict_items

MAX_LOSSES = 3
"""Machines that a run may lose in a row without a new checkpoint."""
SHARD = 4 * BATCH
"""Images that one task classifies: whole batches, so that the predictions equal those of one machine."""
SAME_PATH = "your own data must have the same path on every machine of the cluster"
TASK_FOLDER = "AFDA_TASK_FOLDER"
"""Environment variable with the folder that a run's process removes when its task is lost."""

Files = dict[str, bytes]
Stamps = dict[str, tuple[int, int]]
"""Modification time and size of each file that was sent."""


class Update(NamedTuple):
    """The files of a run that changed, and, when its process has ended, the exit code and the error."""

    files: Files
    exit_code: int | None
    error: str


class ShardResult(NamedTuple):
    """The predictions of a shard, the images that were skipped with the reason, and the indices of missing files."""

    predictions: list[Prediction]
    skipped: list[tuple[str, str]]
    missing: list[int]
    machine: str


class Cluster:
    """A Ray cluster on which every run, or shard of a prediction, takes `cpus` and `gpus`."""

    def __init__(self, address: str | None, cpus: int = 1, gpus: float | None = None) -> None:
        self.ray = connect_ray(address)
        self.gpus = float(self.ray.cluster_resources().get("GPU", 0) > 0) if gpus is None else gpus
        if not self.count_slots(cpus):
            raise UserError(
                f"No machine of the cluster has the {cpus} CPUs and {self.gpus:g} GPUs that each run needs; ask for "
                "fewer."
            )

    @property
    def device(self) -> str:
        """The device of a run: cuda or cpu."""
        return "cuda" if self.gpus else "cpu"

    def disconnect(self) -> None:
        """Leave the cluster, or end it if this program started it."""
        self.ray.shutdown()

    def count_slots(self, cpus: int) -> int:
        """Return how many runs of this many CPUs fit on the machines that are alive."""
        machines = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        needs = [("CPU", cpus), ("GPU", self.gpus)]
        return sum(min(int(has.get(what, 0) // need) for what, need in needs if need) for has in machines)

    def slots(self, threads: int) -> int:
        """Return how many runs can be trained at a time; at least one, which may wait for a machine to return."""
        return max(1, self.count_slots(threads))

    def launch(self, run: Run, data: str, threads: int, options: tuple[str, ...]) -> Process:
        """Start or continue a run that is open and locked."""
        source = data if data in list_names("data") else os.path.abspath(os.path.expanduser(data))
        return RemoteRun(self, run, source, threads, options)

    def build_task(self, function: Callable[..., Any], cpus: int, **options: Any) -> Any:
        """Return a function as a Ray task with the resources of a run."""
        return self.ray.remote(num_cpus=cpus, num_gpus=self.gpus, **options)(function)

    def predict(
        self,
        run: Path,
        items: Iterable[Item],
        skip: Callable[[str, str], None],
        *,
        precision: str = "auto",
        threads: int = 1,
    ) -> Generator[Prediction, None, None]:
        """Yield the predictions of `predict_items`, in its order, made by a run's model on the cluster's machines."""
        model = self.ray.put(tuple((name, (run / name).read_bytes()) for name in ("model.json", "model.safetensors")))
        task = self.build_task(classify_shard, threads)
        pending: deque[tuple[list[Item], Any]] = deque()
        try:
            for shard in iterate_batches(map(make_path_absolute, items), SHARD):
                pending.append((shard, task.remote(model, shard, self.device, precision, threads)))
                if len(pending) >= 2 * self.slots(threads):  # bounds the memory
                    yield from self.receive_shard(*pending.popleft(), skip)
            while pending:
                yield from self.receive_shard(*pending.popleft(), skip)
        finally:
            for _, reference in pending:
                self.ray.cancel(reference)

    def receive_shard(self, shard: list[Item], reference: Any, skip: Callable[[str, str], None]) -> list[Prediction]:
        """Wait for a shard and return its predictions; report the images that were skipped."""
        try:
            result: ShardResult = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            if isinstance(cause := getattr(error, "cause", None), UserError):
                raise cause from None
            raise RunFailed(f"The cluster could not classify the images ({get_last_line(error)}).") from None
        missing = [shard[i].image for i in result.missing]
        if local := [image for image in missing if isinstance(image, Path) and os.path.exists(image)]:
            raise UserError(f"{local[0]} exists here, but not on {result.machine}; {SAME_PATH}.")
        for name, reason in result.skipped:
            skip(name, reason)
        return result.predictions


def connect_ray(address: str | None) -> Any:
    """Return Ray, connected to the cluster at this address, or to the one that it finds or starts on this machine."""
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise UserError("Ray is not installed; install it with: pip install -c constraints.txt 'afda[ray]'.") from None
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address not in (None, "auto", "local"):
        host, _, port = address.rpartition(":")
        if "://" in address:
            raise UserError("Give this command on a machine of the cluster, with its --address as HOST:PORT or auto.")
        try:  # without a listener, Ray would retry for many minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        except (OSError, ValueError):
            raise UserError(f"No Ray cluster answers at {address}; start one there with: ray start --head.") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # sends no usage statistics
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address,
            ignore_reinit_error=True,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"Ray cannot be joined or started here ({get_last_line(error)}).") from None
    signal.signal(signal.SIGTERM, handler)  # ray.init replaces it
    return ray


class RemoteRun:
    """A run on a machine of the cluster, with the interface of a process. `poll` writes the files that come back."""

    def __init__(self, cluster: Cluster, run: Run, data: str, threads: int, options: tuple[str, ...]) -> None:
        self.ray, self.run, self.losses = cluster.ray, run, 0
        self.returncode: int | None = None
        self.error = ""
        self.arguments = str(run.path), data, threads, (*options, "--device", cluster.device), __version__
        # A retry by Ray would start from the files of the first attempt.
        self.task = cluster.build_task(train_run, threads, max_retries=0)
        self.send()

    def send(self) -> None:
        """Start the task with the current files of the run."""
        files = collect_changed_files(self.run.path, {})
        if (previous := self.run.path / PREVIOUS).exists():
            files[PREVIOUS] = previous.read_bytes()
        self.updates = self.task.remote(files, *self.arguments)

    def poll(self) -> int | None:
        """Receive all updates that are ready, and return the exit code once the run has ended."""
        while self.returncode is None and self.ray.wait([self.updates], timeout=0)[0]:
            try:
                self.receive(self.ray.get(next(self.updates)))
            except self.ray.exceptions.RayTaskError as error:
                self.returncode, self.error = 1, get_last_line(error)
            except (self.ray.exceptions.RayError, StopIteration) as error:
                self.losses += 1
                if self.losses > MAX_LOSSES:
                    self.returncode = 1
                    self.error = f"{self.losses} machines were lost one after another ({get_last_line(error)})"
                else:
                    self.send()
        return self.returncode

    def receive(self, update: Update) -> None:
        """Write the files of an update to the run's directory."""
        for name, content in reversed(update.files.items()):
            self.run.write(name, content)
        if CHECKPOINT in update.files:
            self.losses = 0
        if self.run.finished:
            self.run.discard(*WORKING_FILES)
        self.returncode, self.error = update.exit_code, update.error

    def communicate(self) -> tuple[Any, str]:
        """Unlock the run and return its error."""
        self.run.unlock()
        return None, self.error

    def terminate(self) -> None:
        """Cancel the task."""
        self.ray.cancel(self.updates)
        self.returncode = 130


def train_run(
    files: Files, run: str, data: str, threads: int, options: tuple[str, ...], version: str
) -> Iterator[Update]:
    """Start or continue the run of these files on a machine of the cluster, and yield what changes.

    Errors name the `run` by its path on the machine that started the sweep.
    """
    machine = platform.node()
    if version != __version__:
        error = f"{machine} has afda {__version__}, not {version}; install the same version on every machine."
        yield Update({}, 2, error)
        return
    if os.path.isabs(data) and not os.path.exists(data):
        yield Update({}, 2, f"There is no {data} on {machine}; {SAME_PATH}.")
        return
    with tempfile.TemporaryDirectory(prefix="afda-", ignore_cleanup_errors=True) as folder:
        path, sent = Path(folder), Stamps()
        for name, content in files.items():
            (path / name).write_bytes(content)
        collect_changed_files(path, sent)
        with open(path / ".stderr", "w+", encoding="utf-8") as stderr:
            process = start_attached(path, build_command(path, data, threads, options), stderr)
            try:
                code = None
                while code is None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        code = process.wait(1.0)
                    stderr.seek(0)
                    error = stderr.read().strip().replace(folder, run) if code else ""
                    changed = collect_changed_files(path, sent, has_ended=code == 0)
                    yield Update(changed, code, f"{error} (on {machine})" if error else "")
            finally:
                process.kill()
                process.wait()


def start_attached(folder: Path, arguments: list[str], stderr: Any) -> "subprocess.Popen[bytes]":
    """Start `afda` with these arguments as a process that ends, and removes the folder, when this process ends."""
    return subprocess.Popen(
        [sys.executable, "-c", "from afda.experiments.ray_cluster import run_attached; run_attached()", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={**os.environ, TASK_FOLDER: str(folder)},
    )


def run_attached() -> None:
    """Run the command line; when the parent process ends, remove the task's folder and end too."""

    def exit_with_parent() -> None:
        os.read(0, 1)  # the parent writes nothing; this returns when its end of the pipe closes
        shutil.rmtree(os.environ[TASK_FOLDER], ignore_errors=True)
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
    from afda.cli import main

    main()


def collect_changed_files(path: Path, sent: Stamps, has_ended: bool = False) -> Files:
    """Return the files of a run that differ from those `sent` before, and update `sent`.

    They are to be written in reverse order. The checkpoint is read before the log and other files that must not be
    older, and written after them. The result, which marks a run as finished, is read only when the run has ended, and
    written last.
    """
    changed: Files = {}
    names = {inside.name for inside in path.iterdir() if inside.is_file() and not inside.name.startswith(".")}
    names -= {PREVIOUS} if has_ended else {PREVIOUS, "result.json"}
    for name in sorted(names, key=lambda name: (name != "result.json", name != CHECKPOINT, name)):
        with contextlib.suppress(FileNotFoundError):
            status = (path / name).stat()
            stamp = status.st_mtime_ns, status.st_size
            if sent.get(name) != stamp:
                sent[name], changed[name] = stamp, (path / name).read_bytes()
    return changed


def classify_shard(
    model_files: tuple[tuple[str, bytes], ...], shard: list[Item], device: str, precision: str, threads: int
) -> ShardResult:
    """Classify the images of a shard on a machine of the cluster."""
    skipped: list[tuple[str, str]] = []
    model, shape, runtime = load_model_files(model_files, device, precision, threads)
    predictions = list(predict_items(model, shape, shard, runtime, lambda name, reason: skipped.append((name, reason))))
    missing = [i for i, item in enumerate(shard) if isinstance(item.image, Path) and not os.path.exists(item.image)]
    return ShardResult(predictions, skipped, missing, platform.node())


@functools.lru_cache(1)
def load_model_files(
    files: tuple[tuple[str, bytes], ...], device: str, precision: str, threads: int
) -> tuple[Model, tuple[int, ...], Runtime]:
    """Return the model in these files, the shape of its images and its runtime; cached for the next shard."""
    with tempfile.TemporaryDirectory(prefix="afda-") as folder:
        for name, content in files:
            Path(folder, name).write_bytes(content)
        model, shape = load_model(Path(folder))
    runtime = select_runtime(device, precision, threads)
    runtime.place(model)
    return model, shape, runtime


def make_path_absolute(item: Item) -> Item:
    """Return an item whose file can be found from any working directory."""
    return item._replace(image=Path(os.path.abspath(item.image))) if isinstance(item.image, Path) else item


def get_last_line(error: BaseException) -> str:
    """Return the last line of an error of Ray, which names the cause."""
    lines = str(getattr(error, "cause", None) or error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
