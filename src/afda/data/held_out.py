"""A test and a validation set from a person's labelled images, where they have given none."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

ENOUGH = {"test": (20, 0.25), "val": (10, 0.2)}
"""A part that is missing is held out from the labelled images if there are so many per class on average: what share."""


def held_out(labels: Mapping[str, Any], given: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """The part that an image is to go to, for those that are held out, and what was done in words.

    `labels` has the label of each labelled training image by its name, and `given` are the parts that there are. Which
    images are held out depends on their names alone, so that it is the same for every seed.
    """
    left = dict(labels)
    parts: dict[str, str] = {}
    notes = []
    for part, (enough, share) in ENOUGH.items():
        if part in given:
            continue
        counts = Counter(left.values())
        total, called = counts.total(), {"test": "test set", "val": "validation set"}[part]
        if not counts or total < enough * len(counts):
            notes.append(f"There is no {called}, and {total} labels are too few to hold one out.")
            continue
        chosen = drawn(left, counts, share)
        parts |= dict.fromkeys(chosen, part)
        left = {name: label for name, label in left.items() if name not in parts}
        notes.append(f"There is no {called}: {len(chosen)} of the {total} labelled images are held out as one.")
    return parts, notes


def drawn(labels: Mapping[str, Any], counts: Counter[Any], share: float) -> list[str]:
    """This share of each class's images; a class with very few keeps them."""
    of_class: dict[Any, list[str]] = {}
    for name in sorted(labels, key=lambda name: hashlib.sha256(name.encode(errors="surrogateescape")).digest()):
        of_class.setdefault(labels[name], []).append(name)
    return [name for label, names in of_class.items() for name in names[: int(share * counts[label])]]
