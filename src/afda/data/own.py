"""A person's own image files as a data set: their classes, the shape they are brought to, and what is held out."""

import hashlib
import json
import warnings
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import torch

from afda.data.cache import Progress, Shape, decoded, headers
from afda.data.decode import Header
from afda.data.files import Entry, listed, rows_of
from afda.data.held_out import held_out
from afda.data.images import UNLABELLED, DataSet, Images, Preparation
from afda.errors import UserError

PART_ORDER = ("train", "val", "test")
"""How the images of a data set lie in its cache, each part in one piece."""


class Chosen(NamedTuple):
    """The shape that images are brought to, and why."""

    shape: Shape
    reason: str


def load(
    path: Path,
    *,
    shape: Shape | None = None,
    side: int | None = None,
    to_train_on: bool = True,
    progress: Progress | None = None,
) -> DataSet:
    """The data set in a folder or table. Without a shape, one that suits the images is chosen, with this side if given.

    Data `to_train_on` have at least two classes, and a test and a validation set, which are held out from the labelled
    images if there are none.
    """
    files = listed(path)
    if not files.entries:
        raise UserError(f"There are no images in {path}; see docs/your-own-images.md for how to lay them out.")
    name = path.resolve().name if path.is_dir() else path.stem
    notes = list(files.notes)
    known = headers(files.root, [e.path for e in files.entries])
    if shape is None:
        shape, reason = chosen_shape(list(known.values()), path, side)
        notes.append(reason)
    # What cannot be read is not counted, nor held out.
    bad = {p: told for p, told in known.items() if isinstance(told, str)}
    files = replace(
        files,
        entries=tuple(e for e in files.entries if e.path not in bad),
        refused=(*files.refused, *bad.items()),
    )
    entries = files.entries
    if to_train_on:
        labels = {e.path: e.label for e in entries if e.part == "train" and e.label is not None}
        moved, held = held_out(labels, {e.part for e in entries if e.label is not None})
        entries = tuple(e._replace(part=moved.get(e.path, e.part)) for e in entries)
        notes += held
    entries = tuple(sorted(entries, key=lambda e: (PART_ORDER.index(e.part), e.path)))
    found = decoded(files.root, [e.path for e in entries], shape, progress)
    skipped = (*files.refused, *found.skipped)
    if not found.rows:
        raise UserError(f"None of the {len(skipped)} images in {path} can be read; the first: {skipped[0][1]}.")
    if skipped:
        first = ", ".join(f"{where} ({reason})" for where, reason in skipped[:3])
        more = f" and {len(skipped) - 3} more" if len(skipped) > 3 else ""
        notes.append(f"Left out, because they cannot be used: {first}{more}.")
    by_path = {e.path: e for e in entries}
    read = [by_path[row.path] for row in found.rows]
    classes = classes_of(read, path) if to_train_on else tuple(sorted({e.label for e in read if e.label is not None}))
    number = {None: UNLABELLED} | {name: k for k, name in enumerate(classes)}
    y = torch.tensor([number[e.label] for e in read], dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's: the pixels are mapped from a file, to be read only
        x = torch.from_numpy(found.x)
    ends = np.cumsum([0, *(sum(e.part == part for e in read) for part in PART_ORDER)])
    paths = tuple(e.path for e in read)
    parts = {p: Images(x[a:b], y[a:b], paths[a:b]) for p, a, b in zip(PART_ORDER, ends, ends[1:], strict=False)}
    content = [[row.path, by_path[row.path].label, by_path[row.path].part, row.sha256] for row in found.rows]
    return DataSet(
        name=name,
        classes=classes,
        train=parts["train"],
        test=labelled_only(parts["test"]),
        val=labelled_only(parts["val"]),
        preparation=Preparation(shift=min(1 if min(shape[1:]) < 16 else 2, min(shape[1:]) - 1)),
        files={name: hashlib.sha256(json.dumps(content).encode()).hexdigest()},
        notes=tuple(notes),
        skipped=skipped,
    )


def labelled_only(part: Images) -> Images | None:
    """Images held out without a label are of no use."""
    known = part.y != UNLABELLED
    return None if not known.any() else part if known.all() else part[known]


def classes_of(entries: list[Entry], path: Path) -> tuple[str, ...]:
    known = {e.label for e in entries if e.part == "train" and e.label is not None}
    if len(known) < 2:
        have = f"only {known.pop()!r} has" if known else "none has"
        raise UserError(
            f"At least 2 classes with labelled images are needed in {path}; {have} any"
            + (", so give the folder that holds those of the classes." if path.is_dir() else ".")
        )
    for entry in entries:
        if entry.label is not None and entry.label not in known:
            raise UserError(
                f"{entry.path} is in the {entry.part} set with the label {entry.label!r}, which no training image has."
            )
    return tuple(sorted(known))


def chosen_shape(found: list[Header | str], path: Path, side: int | None = None) -> Chosen:
    """Grey if all images are; their own size if it is one and small, else a square that a CPU can train on."""
    known = [h for h in found if isinstance(h, Header)]
    if not known:
        raise UserError(f"None of the {len(found)} images in {path} can be read; the first: {found[0]}.")
    channels = 1 if all(h.grey for h in known) else 3
    kind = "grey" if channels == 1 else "colour"
    if side is not None:
        return Chosen((channels, side, side), f"Images are brought to {side}x{side} pixels in {kind}.")
    sizes = {(h.height, h.width) for h in known}
    if len(sizes) == 1 and max(height_width := sizes.pop()) <= 40 and min(height_width) >= 8:
        return Chosen(
            (channels, *height_width),
            f"All images have {height_width[1]}x{height_width[0]} pixels and are taken as {kind}.",
        )
    short = median(min(h.height, h.width) for h in known)
    side = 48 if short >= 128 else 32 if short >= 24 else 16
    reason = f"Images are brought to {side}x{side} pixels in {kind}: half of them have a shorter side of {short:.0f}"
    return Chosen((channels, side, side), f"{reason} or more. --size decides otherwise.")


def with_more_labels(data: DataSet, path: Path) -> DataSet:
    """The data set with labels from a table that was filled in: columns `label` and `path` (or `row`)."""
    paths = data.train.paths
    key = "path" if paths is not None else "row"
    known = paths if paths is not None else map(str, data.train.source_rows)
    row_of = {name: i for i, name in enumerate(known)}
    y, count = data.train.y.clone(), 0
    for line, row in enumerate(rows_of(path, (key, "label")), start=2):
        label, where = row["label"], row[key].strip()
        if not label.strip():
            continue
        if label not in data.classes:
            raise UserError(f"{path} has the label {label!r} in line {line}; use one of: {', '.join(data.classes)}.")
        index = row_of.get(where)
        if index is None:
            raise UserError(f"{path} names {where!r} in line {line}, which is not a training image of {data.name}.")
        y[index] = data.classes.index(label)
        count += 1
    if not count:
        raise UserError(f"{path} has no labels filled in; write them into its column 'label'.")
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    return replace(
        data,
        train=replace(data.train, y=y),
        files={**data.files, path.name: content},
        notes=(*data.notes, f"{count} labels were added from {path.name}."),
        more_labels=(*data.more_labels, str(path.absolute())),
    )
