"""The verdict on a run from its own files, beside the run that had the same labels and no unlabelled images."""

import shlex
from statistics import mean, stdev
from typing import Any

import numpy as np

from afda.findings.course import curves
from afda.findings.finished import Finished
from afda.report.chance import interval, mcnemar
from afda.runs import BASELINE


def about(one: Finished) -> dict[str, Any]:
    """What is known of a run from its own files: errors with their intervals, curves, recipe and environment."""
    result, recipe, part = one.result, one.recipe, one.part
    scores = result.get(part or "") or {}
    matrix = np.array(scores["confusion"]) if scores else np.zeros((0, 0), int)
    totals, right = matrix.sum(axis=1), matrix.diagonal()
    return {
        "words": one.words,
        "title": recipe.title,
        "data": recipe.data,
        "supervised_only": one.supervised_only,
        "part": part,
        "images": int(totals.sum()),
        "wrong": int(totals.sum() - right.sum()),
        "error": scores.get("error"),
        "interval": interval(int(totals.sum() - right.sum()), int(totals.sum())),
        "verdict": verdict(one, matrix),
        "classes": list(scores.get("class_errors", {})) or list(one.data.classes if one.data else ()),
        "class_errors": [
            {"error": error, "images": int(n), "interval": interval(int(n - r), int(n))}
            for error, n, r in zip(scores.get("class_errors", {}).values(), totals, right, strict=True)
        ],
        "confusion": matrix.tolist(),
        **{
            key: result.get(key)
            for key in ("test_error", "val_error", "labelled_error", "mmd2", "bound", "labels", "unlabelled", "seed")
        },
        **{key: result.get(key) for key in ("steps", "seconds", "images_per_second", "test_curve")},
        "curves": curves(one.run.log()),
        "recipe": recipe.model_dump(mode="json"),
        "environment": one.environment,
        "command": command(one),
    }


def verdict(one: Finished, matrix: np.ndarray) -> list[str]:
    if one.part is None:
        return ["This run was measured on neither test nor validation images, so its error is not known."]
    images, wrong = int(matrix.sum()), int(matrix.sum() - matrix.trace())
    low, high = interval(wrong, images) or (0.0, 100.0)
    sentences = [
        f"{one.result[one.part]['error']:.2f} % of the {one.part} images are misclassified: {wrong:,} of {images:,} "
        f"(95 % interval {low:.1f} to {high:.1f} %)."
    ]
    guessing = 100 * (1 - matrix.sum(axis=1).max() / images)
    if high >= guessing:
        sentences.append(
            f"That is no better than always naming the commonest class ({guessing:.1f} %): train longer, or give more "
            "labels."
        )
    if one.part == "validation":
        sentences.append(
            "There is no test set, or it was left shut: this is the error on validation images, which is too "
            "favourable if settings were chosen on them."
        )
    return sentences


def versus(one: Finished, runs: list[Finished]) -> dict[str, Any] | None:
    """The run beside the supervised-only run with the same labels: did the unlabelled images help, or was it chance?"""
    if one.supervised_only or one.part is None:
        return None
    own = (one.run.path / BASELINE).resolve()
    candidates = sorted(
        (
            i
            for i, r in enumerate(runs)
            if r.supervised_only and r.same_labels == one.same_labels and r.part == one.part
        ),
        key=lambda i: runs[i].run.path.resolve() != own,
    )
    if not candidates:
        return None
    other = runs[candidates[0]]
    errors = one.result[one.part]["error"], other.result[one.part]["error"]
    found: dict[str, Any] = {
        "run": candidates[0],
        "error": errors[1],
        "difference": errors[0] - errors[1],
        "only_this": None,
        "only_other": None,
        "p": None,
    }
    if one.logits is not None and other.logits is not None and one.scored is not None:
        right, others = (r.logits.argmax(dim=1) == one.scored.y for r in (one, other))  # type: ignore[union-attr]
        found["only_this"], found["only_other"] = int((right & ~others).sum()), int((others & ~right).sum())
        found["p"] = mcnemar(found["only_this"], found["only_other"])
    return {**found, "outcome": outcome(found), "words": comparison(one, other, found)}


def outcome(found: dict[str, Any]) -> str:
    """helped, harmed, or unclear when chance may have made the difference."""
    if found["p"] is None or found["p"] >= 0.05:
        return "unclear"
    return "helped" if found["difference"] < 0 else "harmed"


def comparison(one: Finished, other: Finished, found: dict[str, Any]) -> list[str]:
    points = f"{abs(found['difference']):.2f} points {'fewer' if found['difference'] < 0 else 'more'} errors"
    error = f"{one.part} error is {found['error']:.2f} %"
    same = f"Supervised-only, with the same {one.result['labels']:,} labels, the {error}."
    if found["difference"] == 0:
        images = sum(sum(row) for row in one.result[str(one.part)]["confusion"])
        return [same, f"The unlabelled images made no difference to the number of errors on these {images:,} images."]
    if found["p"] is None:
        missing = "whether that is more than chance cannot be said without the predictions of both."
        return [same, f"With the unlabelled images there are {points}; {missing}"]
    chance = f"p = {found['p']:.2g}" if found["p"] >= 1e-4 else "p < 0.0001"
    split = (
        f"{found['only_this'] + found['only_other']:,} images are classified correctly by only one of the two, "
        f"{found['only_this']:,} of them by this run (exact McNemar test, {chance})."
    )
    if found["p"] >= 0.05:
        return [same, f"Whether the unlabelled images helped is unclear: {points} may be chance.", split]
    did = "helped" if found["difference"] < 0 else "did harm"
    return [same, f"The unlabelled images {did}: {points}, more than the choice of {one.part} images explains.", split]


def grouped(runs: list[Finished]) -> list[dict[str, Any]]:
    """Runs that differ in nothing but the seed, with the mean and standard deviation of their errors."""
    by_recipe: dict[str, list[int]] = {}
    for i, one in enumerate(runs):
        by_recipe.setdefault(one.but_for_the_seed, []).append(i)
    groups = []
    for members in by_recipe.values():
        of_group: dict[str, Any] = {"runs": members, "words": runs[members[0]].words}
        for key in ("test_error", "val_error", "mmd2", "seconds"):
            values = [v for i in members if (v := runs[i].result.get(key)) is not None]
            of_group[key] = mean(values) if values else None
            of_group[f"{key}_std"] = stdev(values) if len(values) > 1 else None
        groups.append(of_group)
    return groups


def command(one: Finished) -> str:
    """What trains this run again."""
    environment = one.environment
    more = ["--precision", environment["precision"]] if "precision" in environment else []
    if environment.get("device") == "cpu":
        more += ["--device", "cpu", "--threads", str(environment["threads"])] if "threads" in environment else []
    for table in environment.get("more_labels") or ():
        more += ["--more-labels", table]
    shape: list[int] = environment.get("shape") or []
    if len(shape) == 3 and shape[1] == shape[2] and one.data is not None and one.data.train.paths is not None:
        more += ["--size", str(shape[1])]
    more += [
        option for option, said in (("--no-test", "no_test"), ("--snapshots", "snapshots")) if environment.get(said)
    ]
    if environment.get("baseline") is False:
        more.append("--no-baseline")
    recipe = str(one.run.path / "recipe.json")
    return shlex.join(["afda", "train", str(environment.get("source")), "--recipe", recipe, "--out", "again", *more])
