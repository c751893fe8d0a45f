"""Hold out a test and a validation set from a user's labelled images, where none is given."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

LOAD_RULES = 2
"""How a user's own data are loaded. 1, as in afda 0.1: a test set is held out from 20 labels per class on and a
validation set from 10 on, and exact copies stay. 2: both from 50 labels per class on, and exact copies are dropped."""
SHARES = {"test": 0.25, "val": 0.2}
"""The share of the labelled images that is held out, for each part."""
ENOUGH = {1: {"test": 20, "val": 10}, 2: {"test": 50, "val": 50}}
"""For each of the load rules: the labels per class, on average, that it takes to hold out each part."""
CALLED = {"test": "test set", "val": "validation set"}


def hold_out(
    labels: Mapping[str, Any],
    given: Iterable[str],
    groups: Mapping[str, str] | None = None,
    load_rules: int = LOAD_RULES,
) -> tuple[dict[str, str], list[str]]:
    """Return the part of each image that is held out, by its name, and notes for the user.

    `labels` has the label of each labelled training image by its name; `given` are the parts that exist; `groups` has
    the group of each training image that has one. Groups are held out as a whole, with their unlabelled images. Which
    images are held out depends on names alone, so it is the same for every seed.
    """
    groups = groups or {}
    left = dict(labels)
    parts: dict[str, str] = {}
    too_few: list[str] = []
    too_large: list[str] = []
    notes = []
    for part, enough in ENOUGH[load_rules].items():
        if part in given:
            continue
        counts = Counter(left.values())
        total = counts.total()
        if not counts or total < enough * len(counts):
            too_few.append(CALLED[part])
            continue
        chosen = draw_share(left, groups, SHARES[part])
        if not chosen:
            too_large.append(CALLED[part])
            continue
        taken = {groups[name] for name in chosen if name in groups}
        members = [name for name, group in groups.items() if group in taken]
        parts |= dict.fromkeys([*chosen, *members], part)
        left = {name: label for name, label in left.items() if name not in parts}
        unlabelled = len(set(members) - labels.keys())
        notes.append(describe_held_out(CALLED[part], len(chosen), total, unlabelled, bool(taken)))
    if too_few:
        per_class = len(left) / max(1, len(set(left.values())))
        notes.append(describe_lacking(too_few, f"there are too few labels ({per_class:.3g} per class)"))
    if too_large:
        notes.append(describe_lacking(too_large, "the groups of images are too large"))
    return parts, notes


def draw_share(labels: Mapping[str, Any], groups: Mapping[str, str], share: float) -> list[str]:
    """Return about this share of each class's images, in whole groups; a class with very few keeps them.

    An image without a group is a group of its own. A group may exceed the share, but never take more than half of a
    class.
    """
    members: dict[str, list[str]] = {}
    for name in labels:
        # No file's name has a zero in it.
        members.setdefault(f"\0{groups[name]}" if name in groups else name, []).append(name)
    counts, drawn = Counter(labels.values()), Counter[Any]()
    chosen: list[str] = []
    for group in sorted(members, key=lambda name: hashlib.sha256(name.encode(errors="surrogateescape")).digest()):
        more = Counter(labels[name] for name in members[group])
        wanted = any(drawn[label] < int(share * counts[label]) for label in more)
        if wanted and all(2 * (drawn[label] + count) <= counts[label] for label, count in more.items()):
            chosen += members[group]
            drawn += more
    return chosen


def describe_held_out(called: str, held: int, total: int, unlabelled: int, grouped: bool) -> str:
    """Return a note about a set that was held out."""
    note = f"there is no {called}, so {held} of the {total} labelled images are held out as one"
    if grouped:
        note += ", in whole groups"
    if unlabelled:
        note += f"; {unlabelled} unlabelled images of these groups are left out"
    return f"{note}."


def describe_lacking(lacking: list[str], why: str) -> str:
    """Return a note about sets that are neither given nor held out, and the reason."""
    note = f"{why} to hold out a {' or a '.join(lacking)}"
    if "test set" in lacking:
        return f"{note}, so all of the labels are used for training."
    return f"{note}, so all labels that are left are used for training."
