"""A look at a data set before training: what is there, what is wrong with it, and what to expect."""

import hashlib
import os
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from afda.baseline import follows, without_unlabelled
from afda.budget import seconds_per_step, tried
from afda.data.cache import headers
from afda.data.decode import Header
from afda.data.files import TABLES, listed
from afda.data.images import DataSet, Images
from afda.errors import UserError
from afda.recipe import Recipe
from afda.runtime import Runtime

FEW = 5
"""Labels of a class below which it is called tiny."""
LOPSIDED = 10
"""How many times more labels one class has than another before that is said."""
NOT_CLASSES = ("no_label", "no label", "nolabel", "none", "unknown", "unsorted", "misc", "unlabeled images", "all")
NAMED = 5
"""Examples given in words; all of them are in the JSON."""


def files_found(name: str) -> dict[str, Any]:
    """The image files of a folder or table, whether or not one can train on them; nothing for other data."""
    path = Path(os.path.expanduser(name))
    if not os.path.exists(path) or not (path.is_dir() or path.suffix.lower() in TABLES):
        return {}
    files = listed(path)
    known = headers(files.root, [entry.path for entry in files.entries])
    good = [h for h in known.values() if isinstance(h, Header)]
    unreadable = [*files.refused, *((p, h) for p, h in known.items() if isinstance(h, str))]
    found: dict[str, Any] = {
        "files": len(files.entries),
        "modes": dict(Counter(h.mode for h in good).most_common()),
        "unreadable": [{"path": p, "reason": reason} for p, reason in unreadable],
        "empty_classes": list(files.empty_classes),
    }
    if good:
        sides = [(min(h.width, h.height), max(h.width, h.height)) for h in good]
        found["sizes"] = {
            "shortest_side": min(s[0] for s in sides),
            "longest_side": max(s[1] for s in sides),
            "median_shorter_side": median(s[0] for s in sides),
        }
    return found


def described(data: DataSet) -> dict[str, Any]:
    """How many images there are of each kind and class."""

    def counts(part: Images | None) -> dict[str, int]:
        numbers = Counter([] if part is None else part.y.tolist())
        return {name: numbers[k] for k, name in enumerate(data.classes)}

    known = int((data.train.y >= 0).sum())
    return {
        "name": data.name,
        "shape": list(data.train.shape),
        "images": {
            "labelled": known,
            "unlabelled": len(data.train) - known,
            "validation": 0 if data.val is None else len(data.val),
            "test": 0 if data.test is None else len(data.test),
        },
        "classes": {"labelled": counts(data.train), "validation": counts(data.val), "test": counts(data.test)},
        "notes": list(data.notes),
        "skipped": [{"path": p, "reason": reason} for p, reason in data.skipped],
    }


def duplicates(data: DataSet) -> dict[str, list[list[str]]]:
    """Groups of images that are the same to the net, by where they lie; `contradicting` ones have different labels."""
    places: dict[bytes, list[tuple[str, int, str]]] = defaultdict(list)
    for part, images in (("train", data.train), ("validation", data.val), ("test", data.test)):
        for i, y in enumerate(images.y.tolist() if images is not None else ()):
            kind = part if part != "train" else "labelled" if y >= 0 else "unlabelled"
            where = images.name(i) if images.paths is not None else f"{part} {images.name(i)}"  # type: ignore[union-attr]
            places[hashlib.sha256(images.x[i].numpy().tobytes()).digest()].append((kind, y, where))  # type: ignore[union-attr]
    found: dict[str, list[list[str]]] = defaultdict(list)
    for same in places.values():
        if len(same) > 1:
            kinds = sorted({kind for kind, _, _ in same})
            names = [name for _, _, name in same]
            found[" and ".join(kinds) if len(kinds) > 1 else f"within {kinds[0]}"].append(names)
            if len({y for kind, y, _ in same if y >= 0}) > 1:
                found["contradicting"].append(names)
    return dict(found)


def look_alikes(classes: tuple[str, ...]) -> list[list[str]]:
    """Names of classes that differ in case or blanks only, such as `Cat` and `cat `."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in classes:
        groups[" ".join(name.casefold().split())].append(name)
    return [names for names in groups.values() if len(names) > 1]


def warnings(data: DataSet, same: dict[str, list[list[str]]], files: dict[str, Any]) -> list[str]:
    """What is wrong, one sentence each, the worst first."""
    said = []
    for kind, groups in sorted(same.items(), key=lambda item: ("test" not in item[0], item[0])):
        example = " = ".join(groups[0][:3])
        if kind == "contradicting":
            said.append(f"Images that occur more than once, with different labels: {len(groups)}, such as {example}.")
        elif "test" in kind and "labelled" in kind:
            said.append(f"Test images also in training ({kind}): {len(groups)}; the test error will look too good.")
        else:
            said.append(f"Images that occur more than once ({kind}): {len(groups)}, such as {example}.")
    for names in look_alikes(data.classes):
        said.append(f"The classes {' and '.join(map(repr, names))} look alike; is one of them a typing mistake?")
    for name in data.classes:
        if name.casefold().strip(" _-") in NOT_CLASSES:
            said.append(f"{name!r} is taken for a class; name its folder 'unlabeled' if those images have no label.")
    if empty := files.get("empty_classes"):
        said.append(f"Folders without images are not classes: {listed_in_short(empty)}.")
    counts = Counter(data.train.y[data.train.y >= 0].tolist())
    tiny = [data.classes[k] for k, n in sorted(counts.items()) if n < FEW]
    if tiny:
        few = listed_in_short(tiny)
        said.append(f"{len(tiny)} classes have fewer than {FEW} labels ({few}); a few more would help most there.")
    if max(counts.values()) > LOPSIDED * min(counts.values()):
        most, least = (data.classes[f(counts, key=lambda k: counts[k])] for f in (max, min))
        said.append(
            f"{most!r} has {max(counts.values()) / min(counts.values()):.0f} times as many labels as {least!r}; "
            "look at the errors per class, not only at the whole."
        )
    return said


def listed_in_short(names: list[str]) -> str:
    return ", ".join(map(repr, names[:NAMED])) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def expected(recipe: Recipe, data: DataSet, runtime: Runtime) -> dict[str, Any]:
    """What training costs on this machine, measured."""
    training = tried(recipe, data, runtime)
    per_step, alone = seconds_per_step(training), 0.0
    if follows(recipe, data):  # in the same precision
        alone = seconds_per_step(tried(without_unlabelled(recipe), data, training.runtime))
    return {
        "net": recipe.net.name(),
        "steps": recipe.steps,
        "seconds_per_1000_steps": round(1000 * per_step, 1),
        "seconds_per_1000_steps_supervised": round(1000 * alone, 1),
        "minutes": round(recipe.steps * (per_step + alone) / 60, 1),
    }


def problem_with(recipe: Recipe, data: DataSet) -> str | None:
    """Why one cannot train on these data, if so."""
    try:
        parts = recipe.split_of(data)
    except UserError as error:
        return str(error)
    if len(parts.unlabelled) or not recipe.uses_unlabelled:
        return None
    return "There are no unlabelled images to learn from; add some, or train with --method supervised --align none."
