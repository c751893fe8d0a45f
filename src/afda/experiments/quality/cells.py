"""The cells of the quality suite: one training each, in processes of one thread, written to a file as they finish."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from afda import __version__
from afda.errors import RunFailed, UserError, describe
from afda.experiments.quality.competitors import COLUMNS, predict
from afda.experiments.quality.sets import SETS
from afda.machine.files import check_writable, explain_os_errors
from afda.machine.strict_json import parse_json


class Cell(NamedTuple):
    """One method on one problem."""

    set: str
    labels_per_class: int
    seed: int
    method: str

    def __str__(self) -> str:
        return f"{self.set}, {self.labels_per_class} labels per class, seed {self.seed}, {self.method}"


def check_column(name: str) -> str:
    """Return the name of a column, or raise ValueError."""
    if name not in COLUMNS:
        raise ValueError(f"{name!r} is no column")
    return name


Percent = Annotated[float, Field(ge=0, le=100)]


@dataclass(frozen=True)
class Score:
    """The result of a cell: a line of the file."""

    set: str
    labels_per_class: Annotated[int, Field(ge=1)]
    seed: Annotated[int, Field(ge=0)]
    method: Annotated[str, AfterValidator(check_column)]
    error: Percent
    """Test error in percent."""
    balanced_error: Percent
    """The mean of the classes' test errors in percent."""
    seconds: float
    version: str = ""
    note: str = ""

    @property
    def cell(self) -> Cell:
        return Cell(self.set, self.labels_per_class, self.seed, self.method)

    @classmethod
    def from_json(cls, line: str) -> "Score":
        """Read one line, or raise ValueError."""
        fields = parse_json(line)
        try:
            return TypeAdapter(cls).validate_python(fields)
        except ValidationError:
            raise ValueError("not the result of a cell") from None


class Failure(NamedTuple):
    """A cell without a result, and why."""

    cell: Cell
    problem: str


Results = Generator[Score | Failure, None, None]


def measure(cell: Cell) -> Score:
    """Make the problem, fit the method and measure its error on the test set, which is opened last."""
    problem = SETS[cell.set].make(cell.labels_per_class, cell.seed)
    started = time.perf_counter()
    predicted = predict(cell.method, problem, cell.seed)
    wrong = predicted.classes != problem.y_test
    by_class = [wrong[problem.y_test == k].mean() for k in np.unique(problem.y_test)]
    return Score(
        *cell,
        error=round(100 * float(wrong.mean()), 4),
        balanced_error=round(100 * float(np.mean(by_class)), 4),
        seconds=round(time.perf_counter() - started, 3),
        version=__version__,
        note=predicted.note,
    )


def read_scores(file: Path) -> list[Score]:
    """Read the results in a file. A last line without its end, of a run that was cut off, does not count."""
    try:
        *lines, _ = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{file} cannot be read as results of the quality suite; choose another --out.") from None
    scores = {}
    for number, line in enumerate(lines, 1):
        try:
            score = Score.from_json(line)
        except ValueError as error:
            raise UserError(f"{file}, line {number}, is damaged ({error}); remove the line.") from None
        scores[score.cell] = score
    return list(scores.values())


def append_score(file: Path, score: Score) -> None:
    """Add a line to the file, and flush it to disk."""
    with explain_os_errors(file), file.open("ab") as out:
        out.write(json.dumps(asdict(score), separators=(",", ":")).encode() + b"\n")
        out.flush()
        os.fsync(out.fileno())


def open_results(file: Path | None) -> list[Score]:
    """Return the results that the file has already, and prepare it for more."""
    if file is None:
        return []
    check_writable(file.parent)
    if not file.exists():
        return []
    scores = read_scores(file)
    with explain_os_errors(file), file.open("rb+") as out:  # remove a line that was cut off
        content = out.read()
        out.truncate(content.rfind(b"\n") + 1)
    return scores


def run_cells(cells: Sequence[Cell], file: Path | None = None, jobs: int = 1) -> Results:
    """Yield the results of all cells: first those in the file, then the others, which are added to it."""
    wanted = set(cells)
    found = {score.cell: score for score in open_results(file) if score.cell in wanted}
    yield from found.values()
    left = [cell for cell in cells if cell not in found]
    with contextlib.closing(run_here(left) if jobs == 1 else run_in_processes(left, jobs)) as results:
        for result in results:
            if file is not None and isinstance(result, Score):
                append_score(file, result)
            yield result


def attempt(cell: Cell) -> Score | Failure:
    """Return the result of a cell, or why it has none."""
    try:
        return measure(cell)
    except Exception as error:  # a method's failure must not end the suite
        return Failure(cell, describe(error))


def run_here(cells: Iterable[Cell]) -> Results:
    """Yield the results one by one, computed with one thread."""
    import torch
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield from map(attempt, cells)
    finally:
        torch.set_num_threads(threads)


def prepare_process() -> None:
    """Give a worker one thread; it ends with the process that started it, which also handles Ctrl-C."""
    import torch
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    threadpool_limits(1)


def exit_with_parent() -> None:
    """End this worker when the process that started it has ended, however that ended."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def run_in_processes(cells: Iterable[Cell], jobs: int) -> Results:
    """Yield the results as they finish, computed by several processes of one thread each."""
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), prepare_process)
    futures: dict[Future[Score | Failure], Cell] = {pool.submit(attempt, cell): cell for cell in cells}
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:
        for process in list((pool._processes or {}).values()):
            if not all(future.done() for future in futures):
                process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def check_failures(failures: Sequence[Failure], cells: int) -> None:
    """Raise RunFailed if a method failed on a problem."""
    if failures:
        first = failures[0]
        raise RunFailed(
            f"{len(failures)} of {cells} trainings failed, the first ({first.cell}) with: {first.problem.rstrip('.')}."
        )
