"""Hold out a test and a validation set from a user's labelled images, where none is given."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

ENOUGH = {"test": (20, 0.25), "val": (10, 0.2)}
"""For each part: the labels per class, on average, that it takes to hold it out, and the share that is held out."""


def hold_out(labels: Mapping[str, Any], given: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return the part of each image that is held out, by its name, and notes for the user.

    `labels` has the label of each labelled training image by its name; `given` are the parts that exist. Which images
    are held out depends on their names alone, so it is the same for every seed.
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
            notes.append(f"there is no {called}, and {total} labels are too few to hold one out.")
            continue
        chosen = draw_share(left, counts, share)
        parts |= dict.fromkeys(chosen, part)
        left = {name: label for name, label in left.items() if name not in parts}
        notes.append(f"there is no {called}, so {len(chosen)} of the {total} labelled images are held out as one.")
    return parts, notes


def draw_share(labels: Mapping[str, Any], counts: Counter[Any], share: float) -> list[str]:
    """Return this share of each class's images; a class with very few keeps them."""
    of_class: dict[Any, list[str]] = {}
    for name in sorted(labels, key=lambda name: hashlib.sha256(name.encode(errors="surrogateescape")).digest()):
        of_class.setdefault(labels[name], []).append(name)
    return [name for label, names in of_class.items() for name in names[: int(share * counts[label])]]
