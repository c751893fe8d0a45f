"""The classes of any number of images, in constant memory: from folders, lists, tables, single files or arrays."""

import contextlib
import csv
import json
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from afda.data.decode import Unreadable, is_image, pixels
from afda.data.files import TABLES, images_below, rows_of
from afda.errors import UserError
from afda.inference import Model, outputs
from afda.runs import full_disk_explained
from afda.runtime import Runtime

BATCH = 256
AHEAD = 3
"""Batches being decoded while one is classified."""
KINDS = (".csv", ".parquet", ".jsonl")


class Item(NamedTuple):
    """An image to classify: what it is called in the output, and its file or its pixels."""

    name: str
    image: Path | np.ndarray


Row = dict[str, Any]


def items(given: list[str]) -> Iterator[Item]:
    """The images that the arguments stand for, in order, found as they are needed."""
    for name in given:
        path = Path(name).expanduser()
        if path.is_dir():
            refused: list[tuple[str, str]] = []
            for found in images_below(path, path, refused):
                yield Item(str(path / found), path / found)
        elif not path.exists():
            raise UserError(f"There is no file or folder {path}.")
        elif path.suffix.lower() in TABLES:
            for row in rows_of(path, ("path",)):
                yield Item(str(row["path"]), path.parent / str(row["path"]))
        elif path.suffix.lower() == ".txt":
            with open(path, encoding="utf-8", errors="surrogateescape") as lines:
                for line in filter(None, map(str.strip, lines)):
                    yield Item(line, path.parent / line)
        elif path.suffix.lower() == ".npz":
            from afda.data.arrays import only_images

            for i, image in enumerate(only_images(path)):
                yield Item(f"{path.name}:{i}", image)
        elif is_image(path):
            yield Item(str(path), path)
        else:
            raise UserError(f"{path} is not an image, nor a folder, a .txt list, a table or an .npz file of images.")


def predicted(
    model: Model, shape: tuple[int, ...], todo: Iterable[Item], runtime: Runtime, skipped: Callable[[str, str], None]
) -> Iterator[Row]:
    """A row per image that can be read; the others are told to `skipped` with the reason."""

    def read(item: Item) -> np.ndarray | str:
        if isinstance(item.image, np.ndarray):
            fits = item.image.shape == shape
            return item.image if fits else f"its shape is {item.image.shape}, but the model takes {shape}"
        if len(shape) != 3:
            return "the model takes vectors, not images"
        try:
            return pixels(item.image, (shape[0], shape[1], shape[2]))
        except Unreadable as problem:
            return str(problem)

    for batch, found in decoded_ahead(read, iter(todo)):
        good = [(item, image) for item, image in zip(batch, found, strict=True) if not isinstance(image, str)]
        for item, image in zip(batch, found, strict=True):
            if isinstance(image, str):
                skipped(item.name, image)
        if not good:
            continue
        result = outputs(model, torch.from_numpy(np.stack([image for _, image in good])), runtime, batch=BATCH)
        confidence, best = model.probabilities(result.logits).max(dim=1)
        unlike = model.familiar.unlike(result.features) if model.familiar is not None else None
        for i, ((item, _), p) in enumerate(zip(good, model.probabilities(result.logits).tolist(), strict=True)):
            row: Row = {"path": item.name, "label": model.classes[int(best[i])], "confidence": float(confidence[i])}
            row["unlike_training"] = None if unlike is None else bool(unlike[i])
            yield row | {f"p_{name}": value for name, value in zip(model.classes, p, strict=True)}


def decoded_ahead(
    read: Callable[[Item], np.ndarray | str], todo: Iterator[Item]
) -> Iterator[tuple[list[Item], list[np.ndarray | str]]]:
    """Batches of items with what was read of each, a few batches ahead of their use."""
    waiting: deque[tuple[list[Item], list[Future[np.ndarray | str]]]] = deque()
    with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        warnings.simplefilter("ignore")  # of Pillow's, about files that are odd but readable
        while True:
            while len(waiting) < AHEAD and (batch := list(islice(todo, BATCH))):
                waiting.append((batch, [pool.submit(read, item) for item in batch]))
            if not waiting:
                return
            batch, futures = waiting.popleft()
            yield batch, [future.result() for future in futures]


@contextlib.contextmanager
def table(path: Path, overwrite: bool) -> Iterator[Callable[[list[Row]], None]]:
    """Write rows to a .csv, .parquet or .jsonl file, which appears when it is whole."""
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise UserError(f"Predictions are written as {', '.join(KINDS)}, not as {path.name}.")
    if path.exists() and not overwrite:
        raise UserError(f"{path} already exists; choose another -o, or add --overwrite.")
    aside = path.with_name(f".{path.name}.part")
    with full_disk_explained(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with contextlib.ExitStack() as stack:
                yield {".csv": csv_writer, ".parquet": parquet_writer, ".jsonl": json_writer}[kind](aside, stack)
            if aside.exists():
                os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)


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
        made = pyarrow.Table.from_pylist(rows, schema=writer.schema if writer is not None else None)
        if writer is None:
            writer = stack.enter_context(parquet.ParquetWriter(path, made.schema))
        writer.write_table(made)

    return write


def in_batches(rows: Iterable[Row], size: int = 1000) -> Iterator[list[Row]]:
    rows = iter(rows)
    while batch := list(islice(rows, size)):
        yield batch
