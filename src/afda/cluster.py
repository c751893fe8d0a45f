"""The same runs and predictions on the machines of a Ray cluster.

A run's task works in a temporary folder of its machine and sends back every file that changes, checkpoints included. So
the machines need not share a disk, and only the program that started the sweep writes to its folder. A run whose
machine is lost continues on another from what has come back.
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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from afda import __version__
from afda.choices import names
from afda.errors import RunFailed, UserError
from afda.inference import Model, load_model
from afda.predict import BATCH, Item, Row, in_batches, predicted
from afda.runs import CHECKPOINT, PREVIOUS, WORKING_FILES, Run
from afda.runtime import Runtime, runtime
from afda.sweep import Process, command

MOST_LOSSES = 3
"""Machines that a run may lose one after another without getting any further."""
SHARD = 4 * BATCH
"""Images that a task classifies: whole batches, so that they are the same as on one machine."""
SAME_PATH = "data of your own must lie at the same path on every machine of the cluster"

Files = dict[str, bytes]
News = tuple[Files, int | None, str]
"""The files of a run that changed, and, when it has ended, its exit code and its complaint."""


class Cluster:
    """A Ray cluster, where every run or part of a prediction takes `cpus` and `gpus`."""

    def __init__(self, address: str | None, cpus: int = 1, gpus: float | None = None) -> None:
        self.ray = connected(address)
        self.gpus = float(self.ray.cluster_resources().get("GPU", 0) > 0) if gpus is None else gpus
        if not self.room(cpus):
            raise UserError(f"No machine of the cluster has {cpus} CPUs and {self.gpus:g} GPUs, as each run needs.")

    @property
    def device(self) -> str:
        return "cuda" if self.gpus else "cpu"

    def leave(self) -> None:
        self.ray.shutdown()

    def room(self, cpus: int) -> int:
        machines = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        needs = [("CPU", cpus), ("GPU", self.gpus)]
        return sum(min(int(has.get(what, 0) // need) for what, need in needs if need) for has in machines)

    def slots(self, threads: int) -> int:
        return max(1, self.room(threads))  # one may wait for a machine to come back

    def launch(self, run: Run, data: str, threads: int, options: tuple[str, ...]) -> Process:
        named = data in names("data.sets")
        return RemoteRun(self, run, data if named else os.path.abspath(os.path.expanduser(data)), threads, options)

    def task(self, function: Callable[..., Any], cpus: int, **how: Any) -> Any:
        return self.ray.remote(num_cpus=cpus, num_gpus=self.gpus, **how)(function)

    def predicted(
        self,
        path: Path,
        todo: Iterable[Item],
        skipped: Callable[[str, str], None],
        *,
        precision: str = "auto",
        threads: int = 1,
    ) -> Iterator[Row]:
        """The rows of `predict.predicted`, in its order, made by the model in `path` on the cluster's machines."""
        model = self.ray.put(tuple((name, (path / name).read_bytes()) for name in ("model.json", "model.safetensors")))
        task = self.task(classified, threads)
        under_way: deque[tuple[list[Item], Any]] = deque()

        def rows() -> list[Row]:
            shard, answer = under_way.popleft()
            try:
                made, left_out, absent, machine = self.ray.get(answer)
            except self.ray.exceptions.RayError as error:
                if isinstance(cause := getattr(error, "cause", None), UserError):
                    raise cause from None
                raise RunFailed(f"The cluster could not classify the images ({last_line(error)}).") from None
            if mine := [shard[i].image for i in absent if os.path.exists(shard[i].image)]:
                raise UserError(f"{mine[0]} is here, but not on {machine}; {SAME_PATH}.")
            for name, reason in left_out:
                skipped(name, reason)
            return made

        try:
            for shard in in_batches(map(with_whole_path, todo), SHARD):
                under_way.append((shard, task.remote(model, shard, self.device, precision, threads)))
                if len(under_way) >= 2 * self.slots(threads):  # so memory is bounded
                    yield from rows()
            while under_way:
                yield from rows()
        finally:
            for _, answer in under_way:
                self.ray.cancel(answer)


def connected(address: str | None) -> Any:
    """Ray, connected to the cluster at this address, or to the one that it finds or starts on this machine."""
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise UserError("Running on Ray needs it: pip install -c constraints.txt 'afda[ray]'.") from None
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address not in (None, "auto", "local"):
        host, _, port = address.rpartition(":")
        if "://" in address:
            raise UserError("Give this command on a machine of the cluster, with its --address as HOST:PORT or auto.")
        try:  # where nobody listens, ray would knock for many minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        except (OSError, ValueError):
            raise UserError(f"No Ray cluster answers at {address}; begin one there with: ray start --head.") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address,
            ignore_reinit_error=True,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"Ray cannot be joined or started here ({last_line(error)}).") from None
    signal.signal(signal.SIGTERM, on_terminate)  # ray puts its own in place
    return ray


class RemoteRun:
    """A run on a machine of the cluster, with the face of a process. Its files come back while one looks."""

    def __init__(self, cluster: Cluster, run: Run, data: str, threads: int, options: tuple[str, ...]) -> None:
        self.ray, self.run, self.losses = cluster.ray, run, 0
        self.returncode: int | None = None
        self.complaint = ""
        self.what = str(run.path), data, threads, (*options, "--device", cluster.device), __version__
        # A lost task is not Ray's to repeat: it would begin with the files of its first beginning.
        self.task = cluster.task(trained, threads, max_retries=0)
        self.send()

    def send(self) -> None:
        files = changed(self.run.path, {})
        if (previous := self.run.path / PREVIOUS).exists():
            files[PREVIOUS] = previous.read_bytes()
        self.news = self.task.remote(files, *self.what)

    def poll(self) -> int | None:
        while self.returncode is None and self.ray.wait([self.news], timeout=0)[0]:
            try:
                self.take(*self.ray.get(next(self.news)))
            except self.ray.exceptions.RayTaskError as error:
                self.returncode, self.complaint = 1, last_line(error)
            except (self.ray.exceptions.RayError, StopIteration) as error:
                self.losses += 1
                if self.losses > MOST_LOSSES:
                    self.returncode = 1
                    self.complaint = f"{self.losses} machines were lost one after another ({last_line(error)})"
                else:
                    self.send()
        return self.returncode

    def take(self, files: Files, code: int | None, complaint: str) -> None:
        for name, content in reversed(files.items()):
            self.run.write(name, content)
        if CHECKPOINT in files:
            self.losses = 0
        if self.run.finished:
            self.run.discard(*WORKING_FILES)
        self.returncode, self.complaint = code, complaint

    def communicate(self) -> tuple[Any, str]:
        self.run.unlock()
        return None, self.complaint

    def terminate(self) -> None:
        self.ray.cancel(self.news)
        self.returncode = 130


def trained(
    files: Files, place: str, data: str, threads: int, options: tuple[str, ...], version: str
) -> Iterator[News]:
    """On a machine of the cluster: begin or continue the run of these files, and tell what becomes of them.

    The run is called by its `place` on the machine that the sweep was started on.
    """
    machine = platform.node()
    if version != __version__:
        yield {}, 2, f"{machine} has afda {__version__}, not {version}; install the same on every machine."
        return
    if os.path.isabs(data) and not os.path.exists(data):
        yield {}, 2, f"There is no {data} on {machine}; {SAME_PATH}."
        return
    with tempfile.TemporaryDirectory(prefix="afda-", ignore_cleanup_errors=True) as folder:
        path, sent = Path(folder), dict[str, tuple[int, int]]()
        for name, content in files.items():
            (path / name).write_bytes(content)
        changed(path, sent)
        words = [sys.executable, "-c", "from afda.cluster import leashed; leashed()"]
        with open(path / ".complaint", "w+", encoding="utf-8") as said:
            process = subprocess.Popen(
                [*words, *command(path, data, threads, options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, "AFDA_LEASH": folder},
            )
            try:
                code = None
                while code is None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        code = process.wait(1.0)
                    said.seek(0)
                    complaint = said.read().strip().replace(folder, place) if code else ""
                    yield changed(path, sent, code == 0), code, f"{complaint} (on {machine})" if complaint else ""
            finally:
                process.kill()
                process.wait()


def changed(path: Path, known: dict[str, tuple[int, int]], ended: bool = False) -> Files:
    """The files of a run that are not as they are `known`, to be written in the opposite order.

    The checkpoint is read before the log and whatever else must not be older, and written after them; the result, which
    says that all is there, is taken when the run has ended, and written last.
    """
    found: Files = {}
    there = {inside.name for inside in path.iterdir() if inside.is_file() and not inside.name.startswith(".")}
    there -= {PREVIOUS} if ended else {PREVIOUS, "result.json"}
    for name in sorted(there, key=lambda name: (name != "result.json", name != CHECKPOINT, name)):
        with contextlib.suppress(FileNotFoundError):
            status = (path / name).stat()
            stamp = status.st_mtime_ns, status.st_size
            if known.get(name) != stamp:
                known[name], found[name] = stamp, (path / name).read_bytes()
    return found


def leashed() -> None:
    """The command line as the child of a task: when the task dies, so does it, and its folder goes."""

    def hold() -> None:
        os.read(0, 1)  # nothing is ever written; it returns when the other end is gone
        shutil.rmtree(os.environ["AFDA_LEASH"], ignore_errors=True)
        os._exit(1)

    threading.Thread(target=hold, daemon=True).start()
    from afda.cli import main

    main()


def classified(
    model: tuple[tuple[str, bytes], ...], shard: list[Item], device: str, precision: str, threads: int
) -> tuple[list[Row], list[tuple[str, str]], list[int], str]:
    """On a machine of the cluster: the rows of these images, those left out with the reason, and which are absent."""
    skipped: list[tuple[str, str]] = []
    ready, shape, machine = at_work(model, device, precision, threads)
    rows = list(predicted(ready, shape, shard, machine, lambda name, reason: skipped.append((name, reason))))
    absent = [i for i, item in enumerate(shard) if isinstance(item.image, Path) and not os.path.exists(item.image)]
    return rows, skipped, absent, platform.node()


@functools.lru_cache(1)
def at_work(
    files: tuple[tuple[str, bytes], ...], device: str, precision: str, threads: int
) -> tuple[Model, tuple[int, ...], Runtime]:
    """The model in these files, on this machine; kept for the next part."""
    with tempfile.TemporaryDirectory(prefix="afda-") as folder:
        for name, content in files:
            Path(folder, name).write_bytes(content)
        model, shape = load_model(Path(folder))
    machine = runtime(device, precision, threads)
    machine.place(model)
    return model, shape, machine


def with_whole_path(item: Item) -> Item:
    """The same image, to be found from anywhere."""
    return item._replace(image=Path(os.path.abspath(item.image))) if isinstance(item.image, Path) else item


def last_line(error: BaseException) -> str:
    """The last line of what Ray says, which is what happened."""
    lines = str(getattr(error, "cause", None) or error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
