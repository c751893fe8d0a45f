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

from afda.data.copies import drop_copies
from afda.data.download import compute_checksums
from afda.data.groups import number_groups
from afda.data.hold_out import LOAD_RULES, hold_out
from afda.data.images import UNLABELLED, DataSet, Images, Preparation
from afda.errors import UserError

KEYS = ("x", "y", "group", "x_test", "y_test", "x_val", "y_val", "classes")
MOST_UNPACKED, MOST_TIMES = 1 << 30, 100
"""A file may unpack to this many bytes, or this many times its size; a few kilobytes can claim to be gigabytes."""
NO_LABEL = {UNLABELLED: UNLABELLED, "": UNLABELLED, str(UNLABELLED): UNLABELLED}


def load(path: str | Path, *, to_train_on: bool = True, load_rules: int = LOAD_RULES) -> DataSet:
    """Load an .npz file whose arrays have the names and the meaning of the arguments of `from_arrays`.

    From data `to_train_on` exact copies are dropped. If they have no test set, one is held out from the labelled images
    if there are enough, and so is a validation set.
    """
    path = Path(path)
    files = {path.name: compute_checksums(path).sha256}
    arrays = _read(path)
    if missing := [key for key in ("x", "y") if key not in arrays]:
        raise UserError(f"{path} has no array {missing[0]!r}; save it with np.savez(path, x=images, y=labels).")
    data = replace(from_arrays(**arrays, name=path.stem, to_train_on=to_train_on), files=files)
    data = replace(data, load_rules=load_rules)
    if to_train_on and load_rules > 1:
        data = drop_copies(data)
    return hold_out_parts(data) if to_train_on and data.test is None else data


def hold_out_parts(data: DataSet) -> DataSet:
    """Return the data set with a test and, if it has none, a validation set of labelled images, if there are enough."""
    train = data.train
    names = list(map(str, train.source_rows))
    labels = {name: label for name, label in zip(names, train.y.tolist(), strict=True) if label != UNLABELLED}
    groups = {} if train.groups is None else dict(zip(names, map(str, train.groups), strict=True))
    parts, notes = hold_out(labels, () if data.val is None else ("val",), groups, data.load_rules)
    data = replace(data, notes=(*data.notes, *notes))
    if not parts:
        return data

    def select(part: str) -> Images | None:
        rows = [i for i, name in enumerate(names) if parts.get(name) == part and name in labels]
        return train[torch.tensor(rows)] if rows else None

    kept = train[torch.tensor([i for i, name in enumerate(names) if name not in parts])]
    return replace(
        data,
        train=kept,
        test=select("test"),
        val=select("val") if data.val is None else data.val,
        files={**data.files, "not held out": hashlib.sha256(kept.source_rows.tobytes()).hexdigest()},
    )


def load_images(path: Path) -> np.ndarray:
    """Return the images or vectors in an .npz file, without labels."""
    arrays = _read(path)
    if "x" not in arrays:
        raise UserError(f"{path} has no array 'x'; save it with np.savez(path, x=images).")
    return convert_inputs(arrays["x"], "x").numpy()


def from_arrays(
    x: Any,
    y: Any,
    *,
    group: Any = None,
    x_test: Any = None,
    y_test: Any = None,
    x_val: Any = None,
    y_val: Any = None,
    classes: Any = None,
    name: str = "arrays",
    to_train_on: bool = True,
) -> DataSet:
    """Return the data set of images or vectors `x` and labels `y`, where -1 (or "" among names) stands for no label.

    `group` has a number or name for each image, such as that of its video, or -1 (or "") for none. Data `to_train_on`
    need labelled images of at least two classes, and of every class.
    """
    inputs, labels = convert_inputs(x, "x"), _convert_labels(y, "y")
    names, known = _number_classes(labels, classes)
    if to_train_on and len(names) < 2:
        raise UserError(
            f"Labels of at least 2 classes are needed; there {'is 1' if names else 'are none'}; label others."
        )
    groups = None if group is None else _number_groups(group, len(labels))
    train = Images(inputs, _number_labels(labels, known, "y"), groups=groups)
    if to_train_on and (absent := [names[k] for k in sorted(set(range(len(names))) - set(train.y.tolist()))]):
        raise UserError(f"The class {absent[0]!r} has no labelled image in y; label at least one.")

    def read_part(x: Any, y: Any, part: str) -> Images | None:
        if x is None and y is None:
            return None
        if x is None or y is None:
            raise UserError(f"Give both x_{part} and y_{part}, or neither.")
        images = Images(
            convert_inputs(x, f"x_{part}"), _number_labels(_convert_labels(y, f"y_{part}"), known, f"y_{part}")
        )
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
        test=read_part(x_test, y_test, "test"),
        val=read_part(x_val, y_val, "val"),
        preparation=_choose_preparation(train.shape),
        balanced=False,
    )


def _read(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name."""
    try:
        with zipfile.ZipFile(path) as packed:
            size = sum(member.file_size for member in packed.infolist())
        if size > max(MOST_UNPACKED, MOST_TIMES * path.stat().st_size):
            raise MemoryError
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            return {key: check_text(held[key]) for key in KEYS if key in held.files}
    except MemoryError as error:
        raise UserError(f"{path} does not fit into memory; give a smaller file.") from error
    except Exception as error:  # on a damaged file zipfile and numpy raise almost anything
        raise UserError(
            f"{path} is not a readable .npz file of plain arrays; save it with np.savez(path, x=images, y=labels)."
        ) from error


def check_text(array: np.ndarray) -> np.ndarray:
    """Return the array, or raise a ValueError if it is declared as text but holds numbers that are no characters."""
    if array.dtype.kind == "U" and (array.reshape(-1).view(np.uint32) > sys.maxunicode).any():
        raise ValueError("not text")
    return array


def convert_inputs(x: Any, key: str) -> Tensor:
    """Return a copy: images as uint8 `(n, c, h, w)`, or vectors as float32 `(n, d)`."""
    x = np.asarray(x)
    if x.ndim not in (2, 3, 4):
        raise UserError(
            f"{key} has the shape {x.shape}; give images (n, h, w) or (n, h, w, channels), or vectors (n, d)."
        )
    if not x.size:
        raise UserError(f"{key} is empty (its shape is {x.shape}); give at least one image.")
    if x.ndim == 2:
        return torch.from_numpy(_convert_vectors(x, key))
    if x.ndim == 3:
        x = x[..., None]
    if x.shape[-1] not in (1, 3, 4):
        raise UserError(
            f"{key} has {x.shape[-1]} channels; give images (n, h, w, channels) with 1, 3 or 4 channels, last."
        )
    return torch.from_numpy(_convert_pixels(x, key).transpose(0, 3, 1, 2).copy())


def _convert_vectors(x: np.ndarray, key: str) -> np.ndarray:
    if x.dtype.kind not in "buif":
        raise UserError(f"{key} holds {x.dtype} values; give vectors of real numbers.")
    with np.errstate(over="ignore", invalid="ignore"):
        vectors = x.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise UserError(f"{key} has values that are not finite in float32; remove or replace them.")
    return vectors


def _convert_pixels(x: np.ndarray, key: str) -> np.ndarray:
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


def _convert_labels(y: Any, key: str) -> list[Any]:
    y = np.asarray(y)
    if y.shape not in ((y.size,), (y.size, 1)):
        raise UserError(f"{key} has the shape {y.shape}; give one label per image, as (n,).")
    if y.dtype.kind not in "iuU":
        raise UserError(f"{key} holds {y.dtype} values; give labels as whole numbers or as names.")
    if y.dtype.kind == "i" and y.size and y.min() < UNLABELLED:
        raise UserError(f"{key} has the label {y.min()}; give labels from 0 up, and {UNLABELLED} for none.")
    return list(y.ravel().tolist())


def _number_classes(labels: Sequence[Any], classes: Any) -> tuple[tuple[str, ...], dict[Any, int]]:
    """Return the names of the classes, and the number of each label's class."""
    if classes is None:
        known = sorted(set(labels) - NO_LABEL.keys())
        names = tuple(map(str, known))
    else:
        names = _check_names(classes)
        known = list(names if labels and isinstance(labels[0], str) else range(len(names)))
    return names, {label: number for number, label in enumerate(known)}


def _check_names(classes: Any) -> tuple[str, ...]:
    classes = np.asarray(classes)
    names = tuple(map(str, classes.ravel().tolist()))
    if classes.ndim != 1 or classes.dtype.kind not in "iuU" or len(set(names)) < len(names) or "" in names:
        raise UserError("The array 'classes' must be a list of different names.")
    return names


def _number_labels(labels: Sequence[Any], known: dict[Any, int], key: str) -> Tensor:
    if strange := set(labels) - known.keys() - NO_LABEL.keys():
        which = "is not one of the classes" if key == "y" else "no image in y has"
        raise UserError(f"{key} has the label {min(strange)!r}, which {which}; correct it or leave those images out.")
    numbers = known | NO_LABEL
    return torch.tensor([numbers[label] for label in labels], dtype=torch.int64)


def _number_groups(group: Any, count: int) -> np.ndarray | None:
    group = np.asarray(group)
    if group.shape not in ((count,), (count, 1)) or group.dtype.kind not in "iuU":
        raise UserError(
            f"group holds {group.dtype} values of shape {group.shape}; give a whole number or a name per image in x."
        )
    return number_groups([None if name in NO_LABEL else str(name) for name in group.ravel().tolist()])


def _choose_preparation(shape: tuple[int, ...]) -> Preparation:
    if len(shape) == 1:
        return Preparation(normalise="standard", shift=0)
    side = min(shape[1:])
    # Reflection cannot bring in more pixels than there are beyond the border's own.
    return Preparation(normalise="centre", shift=min(1 if side < 16 else 2, side - 1))
