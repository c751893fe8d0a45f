"""The user's own data, as numpy arrays or as an .npz file of them."""

import hashlib
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from afda.data.download import checksums
from afda.data.held_out import held_out
from afda.data.images import UNLABELLED, DataSet, Images, Preparation
from afda.errors import UserError

KEYS = ("x", "y", "x_test", "y_test", "x_val", "y_val", "classes")
MOST_UNPACKED, MOST_TIMES = 1 << 30, 100
"""A file may unpack to so many bytes, or to so many times its own size; a few kilobytes can claim to be gigabytes."""
NO_LABEL = {UNLABELLED: UNLABELLED, "": UNLABELLED, str(UNLABELLED): UNLABELLED}


def load(path: str | Path, *, to_train_on: bool = True) -> DataSet:
    """The data set in an .npz file whose arrays have the names, and the meaning, of the arguments of `from_arrays`.

    Of data `to_train_on` that come without a test set, one is held out from the labelled images, and so is a validation
    set.
    """
    path = Path(path)
    files = {path.name: checksums(path).sha256}
    arrays = _read(path)
    if missing := [key for key in ("x", "y") if key not in arrays]:
        raise UserError(f"{path} has no array {missing[0]!r}; save it with np.savez(path, x=images, y=labels).")
    data = replace(from_arrays(**arrays, name=path.stem, to_train_on=to_train_on), files=files)
    return with_parts(data) if to_train_on and data.test is None else data


def with_parts(data: DataSet) -> DataSet:
    """The data set with a test and, if it has none, a validation set of labelled images, if there are enough."""
    y = data.train.y
    labels = {str(row): int(y[row]) for row in (y != UNLABELLED).nonzero().flatten().tolist()}
    parts, notes = held_out(labels, () if data.val is None else ("val",))
    data = replace(data, notes=(*data.notes, *notes))
    if not parts:
        return data
    kept = np.array([row for row in range(len(y)) if str(row) not in parts])

    def chosen(part: str) -> Images | None:
        rows = sorted(int(row) for row, of in parts.items() if of == part)
        return data.train[torch.tensor(rows)] if rows else None

    return replace(
        data,
        train=data.train[torch.from_numpy(kept)],
        test=chosen("test"),
        val=chosen("val") if data.val is None else data.val,
        files={**data.files, "not held out": hashlib.sha256(kept.tobytes()).hexdigest()},
    )


def only_images(path: Path) -> np.ndarray:
    """The images or vectors in an .npz file, of which the labels are not wanted."""
    arrays = _read(path)
    if "x" not in arrays:
        raise UserError(f"{path} has no array 'x'; save it with np.savez(path, x=images).")
    return pixels(arrays["x"], "x").numpy()


def from_arrays(
    x: Any,
    y: Any,
    *,
    x_test: Any = None,
    y_test: Any = None,
    x_val: Any = None,
    y_val: Any = None,
    classes: Any = None,
    name: str = "arrays",
    to_train_on: bool = True,
) -> DataSet:
    """The data set of images or vectors `x` and labels `y`, which are -1 (or "" among names) where there is none.

    Data `to_train_on` have labelled images of at least two classes, and of each that there is.
    """
    inputs, labels = pixels(x, "x"), _labels(y, "y")
    names, known = _classes(labels, classes)
    if to_train_on and len(names) < 2:
        raise UserError(f"Labels of at least 2 classes are needed; there {'is 1' if names else 'are none'}.")
    train = Images(inputs, _indices(labels, known, "y"))
    if to_train_on and (absent := [names[k] for k in sorted(set(range(len(names))) - set(train.y.tolist()))]):
        raise UserError(f"The class {absent[0]!r} has no labelled image in y; label at least one.")

    def held_out(x: Any, y: Any, part: str) -> Images | None:
        if x is None and y is None:
            return None
        if x is None or y is None:
            raise UserError(f"Give both x_{part} and y_{part}, or neither.")
        images = Images(pixels(x, f"x_{part}"), _indices(_labels(y, f"y_{part}"), known, f"y_{part}"))
        if images.shape != train.shape:
            raise UserError(
                f"Images in x_{part} have the shape {images.shape}, those in x {train.shape}; make them alike."
            )
        if (images.y == UNLABELLED).any():
            raise UserError(f"Every image in x_{part} needs a label; y_{part} lacks some.")
        return images

    return DataSet(
        name=name,
        classes=names,
        train=train,
        test=held_out(x_test, y_test, "test"),
        val=held_out(x_val, y_val, "val"),
        preparation=_preparation(train.shape),
        balanced=False,
    )


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as packed:
            size = sum(member.file_size for member in packed.infolist())
        if size > max(MOST_UNPACKED, MOST_TIMES * path.stat().st_size):
            raise MemoryError
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            return {key: valid(held[key]) for key in KEYS if key in held.files}
    except MemoryError as error:
        raise UserError(f"{path} does not fit into memory; give a smaller file.") from error
    except Exception as error:  # on a damaged file zipfile and numpy raise almost anything
        raise UserError(
            f"{path} is not a readable .npz file of plain arrays; save it with np.savez(path, x=images, y=labels)."
        ) from error


def valid(array: np.ndarray) -> np.ndarray:
    """The array, unless it claims to hold text where there are only numbers that are no letters."""
    if array.dtype.kind == "U" and (array.reshape(-1).view(np.uint32) > sys.maxunicode).any():
        raise ValueError("not text")
    return array


def pixels(x: Any, key: str) -> Tensor:
    """Images as uint8 `(n, c, h, w)`, or vectors as float32 `(n, d)`, copied."""
    x = np.asarray(x)
    if x.ndim not in (2, 3, 4):
        raise UserError(
            f"{key} has the shape {x.shape}; give images (n, h, w) or (n, h, w, channels), or vectors (n, d)."
        )
    if not x.size:
        raise UserError(f"{key} is empty (its shape is {x.shape}); give at least one image.")
    if x.ndim == 2:
        return torch.from_numpy(_finite(x, key))
    if x.ndim == 3:
        x = x[..., None]
    if x.shape[-1] not in (1, 3, 4):
        raise UserError(
            f"{key} has {x.shape[-1]} channels; give images (n, h, w, channels) with 1, 3 or 4 channels, last."
        )
    return torch.from_numpy(_bytes(x, key).transpose(0, 3, 1, 2).copy())


def _finite(x: np.ndarray, key: str) -> np.ndarray:
    if x.dtype.kind not in "buif":
        raise UserError(f"{key} holds {x.dtype} values; give vectors of real numbers.")
    with np.errstate(over="ignore", invalid="ignore"):
        vectors = x.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise UserError(f"{key} has values that are not finite in float32; remove or replace them.")
    return vectors


def _bytes(x: np.ndarray, key: str) -> np.ndarray:
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind != "f":
        raise UserError(f"{key} holds {x.dtype} pixels; give uint8 from 0 to 255, or floats from 0 to 1.")
    if not np.isfinite(x).all():
        raise UserError(f"{key} has pixels that are not numbers (NaN or infinite); clean or leave out those images.")
    if not ((x >= 0) & (x <= 1)).all():
        raise UserError(
            f"{key} has float pixels outside 0 to 1; divide them so that they fit, or convert them to uint8."
        )
    return np.round(x.astype(np.float32) * 255).astype(np.uint8)


def _labels(y: Any, key: str) -> list[Any]:
    y = np.asarray(y)
    if y.shape not in ((y.size,), (y.size, 1)):
        raise UserError(f"{key} has the shape {y.shape}; give one label per image, as (n,).")
    if y.dtype.kind not in "iuU":
        raise UserError(f"{key} holds {y.dtype} values; give labels as whole numbers or as names.")
    if y.dtype.kind == "i" and y.size and y.min() < UNLABELLED:
        raise UserError(f"{key} has the label {y.min()}; give labels from 0 up, and {UNLABELLED} for none.")
    return y.ravel().tolist()


def _classes(labels: Sequence[Any], classes: Any) -> tuple[tuple[str, ...], dict[Any, int]]:
    """The classes' names, and the number of the class behind each label."""
    if classes is None:
        known = sorted(set(labels) - NO_LABEL.keys())
        names = tuple(map(str, known))
    else:
        names = _names(classes)
        known = list(names if labels and isinstance(labels[0], str) else range(len(names)))
    return names, {label: number for number, label in enumerate(known)}


def _names(classes: Any) -> tuple[str, ...]:
    classes = np.asarray(classes)
    names = tuple(map(str, classes.ravel().tolist()))
    if classes.ndim != 1 or classes.dtype.kind not in "iuU" or len(set(names)) < len(names) or "" in names:
        raise UserError("The array 'classes' must be a list of different names.")
    return names


def _indices(labels: Sequence[Any], known: dict[Any, int], key: str) -> Tensor:
    if strange := set(labels) - known.keys() - NO_LABEL.keys():
        which = "is not one of the classes" if key == "y" else "no image in y has"
        raise UserError(f"{key} has the label {min(strange)!r}, which {which}; correct it or leave those images out.")
    numbers = known | NO_LABEL
    return torch.tensor([numbers[label] for label in labels], dtype=torch.int64)


def _preparation(shape: tuple[int, ...]) -> Preparation:
    if len(shape) == 1:
        return Preparation(normalise="standard", shift=0)
    side = min(shape[1:])
    # Reflection cannot bring in more pixels than there are beyond the border's own.
    return Preparation(normalise="centre", shift=min(1 if side < 16 else 2, side - 1))
