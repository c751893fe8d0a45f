"""The classes of any number of images, in constant memory: from folders, lists, tables, single files or arrays."""

import contextlib
import copy
import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from afda.data.cache import in_parallel
from afda.data.decode import Unreadable, is_image, pixels
from afda.data.files import TABLES, below, images_below, rows_of
from afda.disk import check_writable, refusals_explained
from afda.errors import UserError
from afda.inference import Model, answers, folded, outputs
from afda.runtime import Runtime

BATCH = 256
LISTS = (".txt", ".npz")
KINDS = (".csv", ".parquet", ".jsonl")


class Item(NamedTuple):
    """An image to classify: what it is called in the output, and its file or its pixels."""

    name: str
    image: Path | np.ndarray


Row = dict[str, Any]
T = TypeVar("T")


def items(given: list[str], skipped: Callable[[str, str], None]) -> Iterator[Item]:
    """The images that the arguments stand for, in order, found as they are needed."""
    paths = [Path(os.path.expanduser(name)) for name in given]
    for path in paths:  # a mistake is better found before the first million images than after
        if not os.path.exists(path):
            raise UserError(
                f"There is no file or folder {path}; give folders, images, .txt lists, tables or .npz files."
            )
        if not path.is_dir() and path.suffix.lower() not in (*TABLES, *LISTS) and not is_image(path):
            raise UserError(f"{path} is not an image, nor a folder, a .txt list, a table or an .npz file of images.")
    for path in paths:
        if path.is_dir():
            refused: list[tuple[str, str]] = []
            for found in images_below(path, path, refused):
                yield Item(str(path / found), path / found)
            for which in refused:
                skipped(*which)
        elif path.suffix.lower() in TABLES:
            for line, row in enumerate(rows_of(path, ("path",)), start=2):
                yield Item(row["path"], path.parent / below(row["path"], path, line))
        elif path.suffix.lower() == ".txt":
            try:
                lines = path.open(encoding="utf-8", errors="surrogateescape")
            except OSError as error:
                raise UserError(f"{path} cannot be read ({error.strerror}).") from None
            with lines:
                for name in filter(None, map(str.strip, lines)):
                    yield Item(name, path.parent / name)
        elif path.suffix.lower() == ".npz":
            from afda.data.arrays import only_images

            for i, image in enumerate(only_images(path)):
                yield Item(f"{path.name}:{i}", image)
        else:
            yield Item(str(path), path)


def predicted(
    model: Model, shape: tuple[int, ...], todo: Iterable[Item], runtime: Runtime, skipped: Callable[[str, str], None]
) -> Iterator[Row]:
    """A row per image that can be read; the others are told to `skipped` with the reason."""

    def read(item: Item) -> tuple[str, np.ndarray | str]:
        if isinstance(item.image, np.ndarray):
            fits = item.image.shape == shape
            return item.name, item.image if fits else f"its shape is {item.image.shape}, but the model takes {shape}"
        if len(shape) != 3:
            return item.name, "the model takes vectors, not images"
        try:
            return item.name, pixels(item.image, (shape[0], shape[1], shape[2]))
        except Unreadable as problem:
            return item.name, str(problem)

    ready, familiar = folded(model), copy.deepcopy(model.familiar)
    headings = [f"p_{name}" for name in model.classes]
    if familiar is not None:
        familiar.cpu()  # where outputs come back to
    for batch in in_batches(in_parallel(read, todo), BATCH):
        for name, problem in batch:
            if isinstance(problem, str):
                skipped(name, problem)
        good = [(name, image) for name, image in batch if not isinstance(image, str)]
        if not good:
            continue
        result = outputs(ready, torch.from_numpy(np.stack([image for _, image in good])), runtime, batch=BATCH)
        probabilities = answers(model, result.logits)
        confidence, best = probabilities.max(dim=1)
        unlike = familiar.unlike(result.features).tolist() if familiar is not None else [None] * len(good)
        columns = confidence.tolist(), best.tolist(), unlike, probabilities.tolist()
        for (name, _), sure, k, strange, shares in zip(good, *columns, strict=True):
            row: Row = {"path": name, "label": model.classes[k], "confidence": sure, "unlike_training": strange}
            yield row | dict(zip(headings, shares, strict=True))


@contextlib.contextmanager
def table(path: Path, overwrite: bool) -> Iterator[Callable[[list[Row]], None]]:
    """Write rows to a .csv, .parquet or .jsonl file, which appears when it is whole."""
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise UserError(f"Predictions are written as {', '.join(KINDS)}, not as {path.name}.")
    check_writable(path.parent)
    with refusals_explained(path.parent):
        for existing in (path, skipped_beside(path)):
            if existing.exists() and not overwrite:
                raise UserError(f"{existing} already exists; choose another -o, or add --overwrite.")
    aside = path.with_name(f".{path.name}.part")
    stack = contextlib.ExitStack()
    try:
        with refusals_explained(path.parent):
            write = {".csv": csv_writer, ".parquet": parquet_writer, ".jsonl": json_writer}[kind](aside, stack)

        def written(rows: list[Row]) -> None:
            with refusals_explained(path.parent):
                write(rows)

        yield written
        with refusals_explained(path.parent):
            stack.close()  # which may have something left to write
            os.replace(aside, path)
    finally:
        with contextlib.suppress(OSError):
            stack.close()
        aside.unlink(missing_ok=True)


def skipped_beside(path: Path) -> Path:
    """The table of the images that could not be read, beside that of the predictions."""
    return path.with_name(f"{path.name}-skipped.csv")


def csv_writer(path: Path, stack: contextlib.ExitStack) -> Callable[[list[Row]], None]:
    file = stack.enter_context(path.open("w", newline="", encoding="utf-8", errors="surrogateescape"))
    writer = csv.writer(file)

    def write(rows: list[Row]) -> None:
        if not file.tell():
            writer.writerow(rows[0])
        writer.writerows([plain(value) for value in row.values()] for row in rows)

    return write


def plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return f"{value:.6g}" if isinstance(value, float) else value


def json_writer(path: Path, stack: contextlib.ExitStack) -> Callable[[list[Row]], None]:
    file = stack.enter_context(path.open("w", encoding="utf-8"))
    return lambda rows: file.writelines(json.dumps(row) + "\n" for row in rows)


def parquet_writer(path: Path, stack: contextlib.ExitStack) -> Callable[[list[Row]], None]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError("Tables in .parquet need pyarrow; install it with: pip install 'afda[parquet]'.") from None
    writer: Any = None

    def write(rows: list[Row]) -> None:
        nonlocal writer
        rows = [{**row, "path": row["path"].encode(errors="replace").decode()} for row in rows]
        made = pyarrow.Table.from_pylist(rows, schema=writer.schema if writer is not None else None)
        if writer is None:
            writer = stack.enter_context(parquet.ParquetWriter(path, made.schema))
        writer.write_table(made)

    return write


def in_batches(rows: Iterable[T], size: int = 1000) -> Iterator[list[T]]:
    rows = iter(rows)
    while batch := list(islice(rows, size)):
        yield batch
