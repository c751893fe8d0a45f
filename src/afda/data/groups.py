"""Groups of images that belong on one side of a split, such as bursts and the frames of a video."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

GROUP_BY = ("folder",)
"""What the images of a folder can be grouped by."""
CALLED = {"train": "training", "val": "validation", "test": "test"}


def number_groups(groups: Sequence[str | None]) -> np.ndarray | None:
    """Return the number of each image's group, or None if no image has one; None among them is a group of its own."""
    names = sorted({group for group in groups if group is not None})
    if not names:
        return None
    number = {name: k for k, name in enumerate(names)}
    alone = iter(range(len(names), len(names) + len(groups)))
    return np.array([next(alone) if group is None else number[group] for group in groups])


def describe_divided(images: Iterable[tuple[str | None, str]]) -> list[str]:
    """Return a warning if groups are in more than one part; each image is given by its group and its part."""
    parts: dict[str, set[str]] = defaultdict(set)
    for group, part in images:
        if group is not None:
            parts[group].add(part)
    divided = sorted(group for group, found in parts.items() if len(found) > 1)
    if not divided:
        return []
    sides = " and the ".join(CALLED[part] for part in CALLED if part in parts[divided[0]])
    count = f"1 group is on several sides of the split: {divided[0]!r} is"
    if len(divided) > 1:
        count = f"{len(divided)} groups are on several sides of the split, such as {divided[0]!r},"
    return [
        f"{count} among the {sides} images. Errors that are measured on divided groups are too low; "
        "put each group on one side."
    ]
