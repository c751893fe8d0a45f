"""Exact copies within a user's own data: an image is used once, on one side, and with one label."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from afda.data.images import UNLABELLED, DataSet, Images, SameImages
from afda.errors import UserError

PARTS = {"train": "train", "val": "validation", "test": "test"}
MOST_REPEATED = 0.05
"""If more than this share of the vectors of a kind repeat others of it, equal vectors are not taken for copies."""
FINGERPRINT = "without copies"
"""The key, among the checksums of a data set's files, of what was left when copies were dropped."""


class Item(NamedTuple):
    """An image: its content, its part (train, val or test), the name of its class if it has a label, and its name."""

    content: bytes | str
    part: str
    label: str | None
    name: str

    @property
    def kind(self) -> str:
        """Where it occurs, in words."""
        if self.part != "train":
            return PARTS[self.part]
        return "unlabelled" if self.label is None else "labelled"


class Drop(NamedTuple):
    """An image that is dropped, and the one that it is a copy of."""

    item: Item
    of: Item


@dataclass(frozen=True)
class Copies:
    """The copies that were found, and what remains without them."""

    kept: tuple[int, ...]
    """Indices of the images that stay."""
    unlabelled: frozenset[int] = frozenset()
    """Indices among them of images that lose their labels, because those of their copies contradict them."""
    lost: dict[str, str] = field(default_factory=dict)
    """For each class that loses labels of training images: an example of such an image and its copy."""
    same: tuple[SameImages, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def find_copies(items: Sequence[Item]) -> Copies:
    """Find exact copies, and choose those that stay.

    A test image stays in the test set, and a validation image in the validation set unless it is in the test set.
    Training images are dropped if they are in either. Of labelled training images and their copies one stays, without
    a label if their labels contradict each other.
    """
    unlabelled: set[int] = set()
    dropped: set[int] = set()
    drops: list[Drop] = []
    same: list[SameImages] = []
    contradictions: list[tuple[Item, Item]] = []
    lost: dict[str, str] = {}
    for group in group_by_content(items):
        out, keep = choose_dropped(group, items)
        members = [items[i] for i in group]
        labels = {item.label for item in members if item.label is not None}
        kept = items[keep].name if out and items[keep].part == "train" else None
        kinds = tuple(sorted({item.kind for item in members}))
        same.append(SameImages(kinds, tuple(item.name for item in members), len(labels) > 1, bool(out), kept))
        dropped |= set(out)
        if kept is not None and len(labels) > 1:
            unlabelled.add(keep)
            other = next(item for item in members if item.label not in (None, items[keep].label))
            contradictions.append((items[keep], other))
            lost |= {str(label): f"{items[keep].name} = {other.name}" for label in labels}
        else:
            drops += [Drop(items[i], items[keep]) for i in out]
            if items[keep].part != "train":
                lost |= {str(items[i].label): f"{items[i].name} = {items[keep].name}" for i in out}
    return Copies(
        kept=tuple(i for i in range(len(items)) if i not in dropped),
        unlabelled=frozenset(unlabelled),
        lost=lost,
        same=tuple(same),
        notes=tuple(describe_drops(drops)),
        warnings=tuple(describe_contradictions(contradictions)),
    )


def group_by_content(items: Sequence[Item]) -> list[list[int]]:
    """Return the indices of images that occur more than once, those with the same content together."""
    places: dict[bytes | str, list[int]] = defaultdict(list)
    for i, item in enumerate(items):
        places[item.content].append(i)
    return [group for group in places.values() if len(group) > 1]


def choose_dropped(group: list[int], items: Sequence[Item]) -> tuple[list[int], int]:
    """Return those of a group of copies that are dropped, and one that stays."""
    for part in ("test", "val"):
        if held := [i for i in group if items[i].part == part]:
            return [i for i in group if items[i].part != part], held[0]
    labelled = [i for i in group if items[i].label is not None]
    return ([i for i in group if i != labelled[0]], labelled[0]) if labelled else ([], group[0])


def describe_drops(drops: Iterable[Drop]) -> list[str]:
    """Return a note for each kind of copies that were dropped."""
    kinds: dict[tuple[str, str], list[Drop]] = defaultdict(list)
    for drop in drops:
        kinds[drop.item.kind, drop.of.kind].append(drop)
    notes = []
    for (kind, of), found in sorted(kinds.items(), key=lambda pair: ("test" not in pair[0][1], pair[0])):
        other = f"other {of}" if kind == of else of
        example = f"{found[0].item.name} = {found[0].of.name}"
        if len(found) == 1:
            one = "another labelled image" if kind == of else f"a {of} image"
            notes.append(f"1 {kind} image is an exact copy of {one} and was dropped: {example}.")
        else:
            notes.append(
                f"{len(found)} {kind} images are exact copies of {other} images and were dropped, such as {example}."
            )
    return notes


def describe_contradictions(pairs: list[tuple[Item, Item]]) -> list[str]:
    """Return a warning about copies with different labels, if there are any."""
    if not pairs:
        return []
    one, other = pairs[0]
    count = "1 image occurs" if len(pairs) == 1 else f"{len(pairs)} images occur"
    example = f"{one.name} ({one.label!r}) = {other.name} ({other.label!r})"
    return [
        f"{count} with contradicting labels, such as {example}; each of them is used once, without a label. "
        "Correct the labels, or delete the wrong copies."
    ]


def check_classes(classes: Sequence[str], labels: Iterable[str | None], copies: Copies) -> None:
    """Refuse data of which a class has no labelled training image left."""
    left = set(labels)
    for name in classes:
        if name not in left:
            raise UserError(
                f"All labelled training images of the class {name!r} are exact copies of test or validation images or "
                f"of images with another label, such as {copies.lost.get(name)}; label other images of it."
            )


def drop_copies(data: DataSet) -> DataSet:
    """Return a data set, whose training images have labels of every class, without exact copies and with notes on them.

    Among vectors of few different values equality means little, and nothing is dropped.
    """
    items = list_items(data)
    if len(data.train.shape) == 1 and is_coincidental(items):
        note = "many vectors are equal, so equal ones are not taken for copies, and none was dropped."
        return replace(data, notes=(*(n for n in data.notes if n != note), note), copies=list_copies(data))
    copies = find_copies(items)
    known = replace(
        data,
        notes=(*data.notes, *copies.notes),
        warnings=(*data.warnings, *copies.warnings),
        copies=(*data.copies, *(same for same in copies.same if same not in data.copies)),
    )
    return known if len(copies.kept) == len(items) else select_kept(known, copies)


def select_kept(data: DataSet, copies: Copies) -> DataSet:
    """Return a data set with only those of its images that stay, and with a fingerprint of these."""
    kept, left, start = np.array(copies.kept), {}, 0
    checksum = hashlib.sha256()
    for part, images in list_parts(data).items():
        y = images.y.clone()
        y[[i - start for i in copies.unlabelled if start <= i < start + len(images)]] = UNLABELLED
        rows = torch.from_numpy(kept[(kept >= start) & (kept < start + len(images))] - start)
        left[part] = replace(images, y=y)[rows]
        checksum.update(left[part].source_rows.tobytes() + left[part].y.numpy().tobytes())
        start += len(images)
    train, val, test = (part if part is not None and len(part) else None for part in map(left.get, PARTS))
    check_classes(data.classes, [] if train is None else [data.classes[k] for k in train.y.tolist() if k >= 0], copies)
    files = {**data.files, FINGERPRINT: checksum.hexdigest()}
    return replace(data, train=train or data.train, val=val, test=test, files=files)


def list_parts(data: DataSet) -> dict[str, Images]:
    """Return the parts that a data set has, in the order of PARTS."""
    return {part: images for part in PARTS if (images := getattr(data, part)) is not None}


def list_items(data: DataSet) -> list[Item]:
    """Return all images of a data set, part by part, with a checksum of what the net sees of each."""
    items = []
    for part, images in list_parts(data).items():
        for i, (content, y) in enumerate(zip(compute_contents(images.x), images.y.tolist(), strict=True)):
            name = images.name(i) if images.paths is not None else f"{PARTS[part]} {images.name(i)}"
            items.append(Item(content, part, None if y == UNLABELLED else data.classes[y], name))
    return items


def compute_contents(x: Tensor) -> Iterator[bytes]:
    """Yield a checksum of each image or vector."""
    for image in x:
        values = image.numpy()
        # A negative zero equals zero, but has other bytes.
        values = values + 0.0 if values.dtype.kind == "f" else values
        yield hashlib.blake2b(values.tobytes(), digest_size=16).digest()


def is_coincidental(items: Iterable[Item]) -> bool:
    """Return True if so many vectors repeat others of their own kind that equal ones need not be copies."""
    kinds: dict[str, list[bytes | str]] = defaultdict(list)
    for item in items:
        kinds[item.kind].append(item.content)
    return any(len(contents) - len(set(contents)) > MOST_REPEATED * len(contents) for contents in kinds.values())


def list_copies(data: DataSet) -> tuple[SameImages, ...]:
    """Return the exact copies within a data set, all of which are used."""
    return tuple(same._replace(dropped=False, kept=None) for same in find_copies(list_items(data)).same)
