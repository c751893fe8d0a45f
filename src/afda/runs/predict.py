"""Prediction for any number of images in constant memory: from folders, lists, tables, single files or arrays."""

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch

from afda.data.cache import map_in_parallel
from afda.data.decode import Unreadable, decode_image
from afda.errors import UserError
from afda.machine.files import write_atomically
from afda.machine.runtime import Runtime, select_runtime
from afda.runs.directory import format_csv
from afda.runs.inputs import Item, Skip, find_items
from afda.runs.model import Model, compute_outputs, compute_probabilities, fold_batchnorm, load_model
from afda.runs.tables import open_table, skipped_path

BATCH = 256

T = TypeVar("T")


class Prediction(NamedTuple):
    """The predicted class of an image, its confidence, and whether the image is unlike the training images."""

    path: str
    label: str
    confidence: float
    unlike_training: bool | None
    """None if the model has no out-of-distribution detector."""
    probabilities: dict[str, float]

    def to_row(self) -> dict[str, Any]:
        """Return the row of the table, with a column for the probability of each class."""
        row: dict[str, Any] = {"path": self.path, "label": self.label, "confidence": self.confidence}
        row["unlike_training"] = self.unlike_training
        return row | {f"p_{name}": share for name, share in self.probabilities.items()}


class Predictor(Protocol):
    """A place where the model of a run classifies images, such as a cluster."""

    def __call__(self, run: Path, items: Iterable[Item], skip: Skip) -> Generator[Prediction, None, None]: ...


@dataclass(frozen=True)
class PredictionSummary:
    """What `predict_to_file` wrote."""

    file: Path
    images: int
    classes: dict[str, int]
    """The number of images of each predicted class, the commonest first."""
    unlike: int
    """The number of images that are unlike the training images."""
    skipped: int
    skipped_file: Path | None
    calibrated: bool

    def to_dict(self) -> dict[str, Any]:
        """Return what `afda predict --json` prints."""
        return {
            "file": str(self.file),
            "images": self.images,
            "classes": self.classes,
            "unlike": self.unlike,
            "skipped": self.skipped,
            "skipped_file": None if self.skipped_file is None else str(self.skipped_file),
            "calibrated": self.calibrated,
        }


def predict_to_file(
    run: Path,
    images: Sequence[str],
    out: Path,
    *,
    runtime: Runtime | None = None,
    predictor: Predictor | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> PredictionSummary:
    """Classify images with the model of a run and write a .csv, .parquet or .jsonl file.

    `images` are folders, image files, .txt lists, tables or .npz files. They are classified with `runtime`, or wherever
    `predictor` does it. Images that cannot be read are listed in a table beside `out`. `progress` is called with the
    number of images classified so far.
    """
    model, shape = load_model(run)
    skipped: list[tuple[str, str]] = []

    def skip(name: str, reason: str) -> None:
        skipped.append((name, reason))

    items = find_items(images, skip)
    if predictor is not None:
        predictions = predictor(run, items, skip)
    else:
        runtime = runtime or select_runtime()
        runtime.place(model)
        predictions = predict_items(model, shape, items, runtime, skip)
    counts: Counter[str] = Counter()
    unlike = 0
    with contextlib.closing(predictions), open_table(out, overwrite) as write:
        for batch in iterate_batches(predictions):
            write([prediction.to_row() for prediction in batch])
            counts.update(prediction.label for prediction in batch)
            unlike += sum(bool(prediction.unlike_training) for prediction in batch)
            progress(counts.total())
        if not counts:
            first = f"; the first: {skipped[0][0]} ({skipped[0][1]})" if skipped else ""
            raise UserError(f"There is no readable image in {', '.join(images)}{first}.")
    skipped_file = skipped_path(out)
    if skipped:
        write_atomically(skipped_file, format_csv(("path", "reason"), skipped).encode(errors="surrogateescape"))
    else:
        skipped_file.unlink(missing_ok=True)  # it belongs to the predictions that were replaced
    return PredictionSummary(
        file=out,
        images=counts.total(),
        classes=dict(counts.most_common()),
        unlike=unlike,
        skipped=len(skipped),
        skipped_file=skipped_file if skipped else None,
        calibrated=model.temperature != 1,
    )


def predict_items(
    model: Model, shape: tuple[int, ...], items: Iterable[Item], runtime: Runtime, skip: Skip
) -> Generator[Prediction, None, None]:
    """Yield a prediction for each image that can be read; call `skip` for the others."""
    ready, detector = fold_batchnorm(model), copy.deepcopy(model.out_of_distribution)
    if detector is not None:
        detector.cpu()  # where the outputs are
    read = lambda item: (item.name, read_image(item, shape))  # noqa: E731
    for batch in iterate_batches(map_in_parallel(read, items), BATCH):
        for name, image in batch:
            if isinstance(image, str):
                skip(name, image)
        readable = [(name, image) for name, image in batch if not isinstance(image, str)]
        if not readable:
            continue
        pixels_of_batch = torch.from_numpy(np.stack([image for _, image in readable]))
        outputs = compute_outputs(ready, pixels_of_batch, runtime, batch=BATCH)
        probabilities = compute_probabilities(model, outputs.logits)
        confidence, best = probabilities.max(dim=1)
        unlike = detector.detect(outputs.features).tolist() if detector is not None else [None] * len(readable)
        columns = confidence.tolist(), best.tolist(), unlike, probabilities.tolist()
        for (name, _), confident, k, strange, shares in zip(readable, *columns, strict=True):
            by_class = dict(zip(model.classes, shares, strict=True))
            yield Prediction(name, model.classes[k], confident, strange, by_class)


def read_image(item: Item, shape: tuple[int, ...]) -> np.ndarray | str:
    """Return the pixels of an image in the model's shape, or the reason why they cannot be read."""
    if isinstance(item.image, np.ndarray):
        fits = item.image.shape == shape
        return item.image if fits else f"its shape is {item.image.shape}, but the model takes {shape}"
    if len(shape) != 3:
        return "the model takes vectors, not images"
    try:
        return decode_image(item.image, (shape[0], shape[1], shape[2]))
    except Unreadable as problem:
        return str(problem)


def iterate_batches(rows: Iterable[T], size: int = 1000) -> Iterator[list[T]]:
    """Yield the rows in lists of `size`; the last one may be shorter."""
    rows = iter(rows)
    while batch := list(islice(rows, size)):
        yield batch
