"""A user's own image files as a data set: their classes, their shape, and the sets that are held out."""

import hashlib
import json
import warnings
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import torch

from afda.data.cache import Decoded, Progress, Shape, decode_images, read_headers
from afda.data.copies import FINGERPRINT, Copies, Item, check_classes, find_copies
from afda.data.decode import Header
from afda.data.files import Entry, list_files, read_rows
from afda.data.groups import describe_divided, number_groups
from afda.data.hold_out import LOAD_RULES, hold_out
from afda.data.images import UNLABELLED, DataSet, Images, Preparation
from afda.errors import UserError

PART_ORDER = ("train", "val", "test")
"""The order of the parts in the cache, where each is contiguous."""


class ChosenShape(NamedTuple):
    """The shape that images are resized to, and a note about it."""

    shape: Shape
    note: str


class Contents(NamedTuple):
    """Readable image files, part by part, with their pixels, notes on sets that are held out, and a fingerprint."""

    entries: list[Entry]
    decoded: Decoded
    notes: list[str]
    fingerprint: str


def load(
    path: Path,
    *,
    shape: Shape | None = None,
    side: int | None = None,
    to_train_on: bool = True,
    group_by: str | None = None,
    load_rules: int = LOAD_RULES,
    progress: Progress | None = None,
) -> DataSet:
    """Load the data set in a folder or table.

    Without a shape, one that suits the images is chosen, with this side if given. Data `to_train_on` have at least two
    classes, no exact copies, and a test and a validation set; these are held out from the labelled images if they are
    missing and there are enough of them.
    """
    files = list_files(path, group_by)
    if not files.entries:
        raise UserError(f"There are no images in {path}; see docs/tutorials/own-images.md for how to lay them out.")
    notes = list(files.notes)
    headers = read_headers(files.root, [entry.path for entry in files.entries])
    if shape is None:
        shape, note = choose_shape(list(headers.values()), path, side)
        notes.append(note)
    # Files that cannot be read are neither counted nor held out.
    unreadable = {name: header for name, header in headers.items() if isinstance(header, str)}
    given = [entry for entry in files.entries if entry.path not in unreadable]
    found = read_contents(files.root, given, shape, load_rules if to_train_on else None, progress)
    skipped = (*files.refused, *unreadable.items(), *found.decoded.skipped)
    if not found.entries:
        raise UserError(f"None of the {len(skipped)} images in {path} can be read; the first: {skipped[0][1]}.")
    name = path.resolve().name if path.is_dir() else path.stem
    fingerprints = {name: found.fingerprint}
    copies = Copies(kept=())
    if to_train_on and load_rules > 1:
        copies, left = drop_copied_entries(given, found, path)
        if len(left) < len(found.entries):
            # The pixels are copied from the cache that was read just now.
            found = read_contents(files.root, left, shape, load_rules)
            fingerprints[FINGERPRINT] = found.fingerprint
    notes += [*found.notes, *copies.notes, *describe_skipped(skipped)]
    classes = list_classes(found.entries, path) if to_train_on else list_labels(found.entries)
    parts = divide(found.entries, found.decoded.x, classes)
    smallest = min(shape[1:])
    return DataSet(
        name=name,
        classes=classes,
        train=parts["train"],
        test=keep_labelled(parts["test"]),
        val=keep_labelled(parts["val"]),
        preparation=Preparation(shift=min(1 if smallest < 16 else 2, smallest - 1)),
        files=fingerprints,
        notes=tuple(notes),
        warnings=(*copies.warnings, *describe_divided((entry.group, entry.part) for entry in given)),
        copies=copies.same,
        skipped=skipped,
        group_by=group_by,
        load_rules=load_rules,
    )


def read_contents(
    root: Path, given: list[Entry], shape: Shape, held_out_by: int | None, progress: Progress | None = None
) -> Contents:
    """Decode image files, part by part; missing parts are held out by these load rules, if any."""
    entries, notes = (given, []) if held_out_by is None else hold_out_entries(given, held_out_by)
    entries = sorted(entries, key=lambda entry: (PART_ORDER.index(entry.part), entry.path))
    decoded = decode_images(root, [entry.path for entry in entries], shape, progress)
    by_path = {entry.path: entry for entry in entries}
    entries = [by_path[row.path] for row in decoded.rows]
    content = [
        [e.path, e.label, e.part, row.sha256, *([] if e.group is None else [e.group])]
        for e, row in zip(entries, decoded.rows, strict=True)
    ]
    return Contents(entries, decoded, notes, hashlib.sha256(json.dumps(content).encode()).hexdigest())


def hold_out_entries(entries: list[Entry], load_rules: int) -> tuple[list[Entry], list[str]]:
    """Return the entries, some of them moved to a test or validation set if there is none, and notes about it."""
    labels = {e.path: e.label for e in entries if e.part == "train" and e.label is not None}
    groups = {e.path: e.group for e in entries if e.part == "train" and e.group is not None}
    moved, notes = hold_out(labels, {e.part for e in entries if e.label is not None}, groups, load_rules)
    return [e._replace(part=moved.get(e.path, e.part)) for e in entries], notes


def drop_copied_entries(given: list[Entry], found: Contents, path: Path) -> tuple[Copies, list[Entry]]:
    """Return the exact copies among image files, by their given parts, and the entries without them."""
    part = {entry.path: entry.part for entry in given}
    entries = [entry._replace(part=part[entry.path]) for entry in found.entries]
    known = list_classes(entries, path)
    items = []
    for entry, row in zip(entries, found.decoded.rows, strict=True):
        is_used = entry.part == "train" or entry.label is not None
        items.append(Item(row.sha256 if is_used else entry.path, entry.part, entry.label, entry.path))
    copies = find_copies(items)
    left = [entries[i]._replace(label=None) if i in copies.unlabelled else entries[i] for i in copies.kept]
    if len(left) < len(entries):
        check_classes(known, [entry.label for entry in left if entry.part == "train"], copies)
    return copies, left


def describe_skipped(skipped: tuple[tuple[str, str], ...]) -> list[str]:
    """Return a note about the files that are not used, if any, with the first three."""
    if not skipped:
        return []
    first = ", ".join(f"{where} ({reason})" for where, reason in skipped[:3])
    more = f" and {len(skipped) - 3} more" if len(skipped) > 3 else ""
    count = (
        "1 image could not be used and was"
        if len(skipped) == 1
        else f"{len(skipped)} images could not be used and were"
    )
    return [f"{count} skipped: {first}{more}."]


def divide(entries: list[Entry], pixels: np.ndarray, classes: tuple[str, ...]) -> dict[str, Images]:
    """Return the images of each part; entries and pixels are in the same order, part by part."""
    number = {None: UNLABELLED} | {name: k for k, name in enumerate(classes)}
    y = torch.tensor([number[entry.label] for entry in entries], dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that the pixels, mapped from a file, are read-only
        x = torch.from_numpy(pixels)
    paths = tuple(entry.path for entry in entries)
    groups = number_groups([entry.group for entry in entries])
    ends = np.cumsum([0, *(sum(entry.part == part for entry in entries) for part in PART_ORDER)])
    return {
        part: Images(x[a:b], y[a:b], paths[a:b], groups=None if groups is None else groups[a:b])
        for part, a, b in zip(PART_ORDER, ends, ends[1:], strict=False)
    }


def keep_labelled(part: Images) -> Images | None:
    """Return the labelled images of a held-out part, or None; those without a label are of no use there."""
    known = part.y != UNLABELLED
    return None if not known.any() else part if known.all() else part[known]


def list_labels(entries: list[Entry]) -> tuple[str, ...]:
    """Return the different labels of any part."""
    return tuple(sorted({entry.label for entry in entries if entry.label is not None}))


def list_classes(entries: list[Entry], path: Path) -> tuple[str, ...]:
    """Return the classes of the training images, or raise a UserError if they are too few or other parts have more."""
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
                f"{entry.path} is in the {entry.part} set with the label {entry.label!r}, which no training image has; "
                "label a training image so, or leave it out."
            )
    return tuple(sorted(known))


def choose_shape(headers: list[Header | str], path: Path, side: int | None = None) -> ChosenShape:
    """Return grey if all images are; their own size if it is one and small, else a square that a CPU can train on."""
    known = [header for header in headers if isinstance(header, Header)]
    if not known:
        raise UserError(f"None of the {len(headers)} images in {path} can be read; the first: {headers[0]}.")
    channels = 1 if all(header.grey for header in known) else 3
    kind = "greyscale" if channels == 1 else "RGB"
    if side is not None:
        return ChosenShape((channels, side, side), f"images are resized to {side}x{side} {kind}.")
    sizes = {(header.height, header.width) for header in known}
    if len(sizes) == 1 and max(size := sizes.pop()) <= 40 and min(size) >= 8:
        return ChosenShape((channels, *size), f"all images are {size[1]}x{size[0]} pixels and are read as {kind}.")
    short = median(min(header.height, header.width) for header in known)
    side = 48 if short >= 128 else 32 if short >= 24 else 16
    note = f"images are resized to {side}x{side} {kind} (median short side: {short:.0f}). Use --size to change this."
    return ChosenShape((channels, side, side), note)


def add_labels(data: DataSet, path: Path) -> DataSet:
    """Return the data set with labels from a table that was filled in: columns `label` and `path` (or `row`)."""
    paths = data.train.paths
    key = "path" if paths is not None else "row"
    known = paths if paths is not None else map(str, data.train.source_rows)
    row_of = {name: i for i, name in enumerate(known)}
    copy_of = find_dropped(data)
    y, count, unused = data.train.y.clone(), 0, 0
    for line, row in enumerate(read_rows(path, (key, "label")), start=2):
        label, where = row["label"], row[key].strip()
        if not label.strip():
            continue
        if label not in data.classes:
            raise UserError(f"{path} has the label {label!r} in line {line}; use one of: {', '.join(data.classes)}.")
        name = where if paths is not None else f"train image {where}"
        index = row_of.get(where)
        if index is None and name in copy_of:
            kept = copy_of[name]
            if kept is None:
                unused += 1
                continue
            index = row_of[kept if paths is not None else kept.removeprefix("train image ")]
        if index is None:
            raise UserError(f"{path} names {where!r} in line {line}, which is not a training image of {data.name}.")
        y[index] = data.classes.index(label)
        count += 1
    if not count and not unused:
        raise UserError(f"{path} has no labels filled in; write them into its column 'label'.")
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    notes = [f"{count} labels were added from {path.name}."]
    if unused:
        of_copies = "is of a copy of a test or validation image and was"
        if unused > 1:
            of_copies = "are of copies of test or validation images and were"
        notes.append(f"{unused} label{'s' * (unused > 1)} in {path.name} {of_copies} not used.")
    return replace(
        data,
        train=replace(data.train, y=y),
        files={**data.files, path.name: content},
        notes=(*data.notes, *notes),
        more_labels=(*data.more_labels, str(path.absolute())),
    )


def find_dropped(data: DataSet) -> dict[str, str | None]:
    """Return, for each image that was dropped or has dropped copies, the training image that stands for it, if any."""
    return {name: same.kept for same in data.copies if same.dropped for name in same.names}
