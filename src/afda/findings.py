"""What a report tells of finished runs: their errors, how they came about, what to look at and what to label next."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch

from afda import __version__
from afda.baseline import FOLDER as COMPANION
from afda.data import load_again
from afda.data.images import DataSet, Images
from afda.errors import UserError
from afda.inference import Model, load_model, outputs
from afda.measures import confusion
from afda.recipe import Recipe
from afda.report import figures
from afda.report.chance import interval, mcnemar, reliability
from afda.report.page import page
from afda.report.pictures import sheet
from afda.results import validation_images
from afda.runs import Run, as_csv
from afda.runtime import Runtime

UNLABELLED = 5000
"""Unlabelled images on the map, as in the paper's figures, and looked through for those to label next."""
MISTAKES = 24
NEXT = 48
MOST_PICTURES = 14_000_000
"""Characters of a page that its pictures may take; with all else it stays below 20 MB."""
NOT_TERMS = {"step", "seconds", "learning_rate", "mu", "discriminator_accuracy", "labelled_error", "mmd2", "val_error"}
"""Numbers in a line of the log that are not terms of the loss."""


@dataclass
class Finished:
    """A finished run with its data and model, as far as they are still there, and the model's answers."""

    run: Run
    recipe: Recipe
    result: dict[str, Any]
    environment: dict[str, Any]
    data: DataSet | None = None
    model: Model | None = None
    missing: list[str] = field(default_factory=list)
    scored: Images | None = None
    """The images that its error is of."""
    logits: torch.Tensor | None = None
    """The model's for those."""

    @property
    def part(self) -> str | None:
        """Which images its error is of: test images, or validation images if no test set was opened."""
        return next((part for part in ("test", "validation") if self.result.get(part)), None)

    @property
    def supervised_only(self) -> bool:
        return not self.recipe.uses_unlabelled

    @property
    def words(self) -> str:
        """Its method in words."""
        methods = "+".join(m.name() for m in self.recipe.method)
        if self.recipe.align is None:
            return COMPANION if self.supervised_only else methods
        return f"{methods} with {self.recipe.align.name()} alignment"

    @property
    def same_labels(self) -> tuple[Any, ...]:
        """What two runs have in common that were trained with the same labels of the same images."""
        recipe = self.recipe
        files = tuple(sorted(self.environment.get("data", {}).items()))
        return recipe.data, files, recipe.labels, recipe.balanced, recipe.validation, recipe.seed

    @property
    def but_for_the_seed(self) -> str:
        return self.recipe.model_copy(update={"seed": 0}).to_json() + str(self.environment.get("data"))


def report(
    paths: Sequence[Path],
    machine: Runtime,
    out: Path | None = None,
    *,
    overwrite: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write the page about these runs and, beside it, the table of images to label next. Returns the files written."""
    path = out or (paths[0] if len(paths) == 1 else Path()) / "report.html"
    table = path.with_name(f"{path.stem}-label-next.csv")
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file with -o, such as {path / 'report.html'}.")
    for existing in (path, table):
        if existing.exists() and not overwrite:
            raise UserError(f"{existing} already exists; add --overwrite to replace it, or name another file with -o.")
    values = findings(paths, machine, tell)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path.parent} cannot be made ({error.strerror}); name another file with -o.") from None
    written = []
    if values["next"]:
        values["next"]["file"] = table.name
        Run(path.parent).write(table.name, as_csv(*label_table(values["next"])).encode(errors="replace"))
        written.append(table)
    Run(path.parent).write(path.name, page(values).encode(errors="replace"))
    return [path, *written]


def findings(paths: Sequence[Path], machine: Runtime, tell: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """All that the page shows of these runs, as plain values. Supervised-only runs inside their directories come along.

    What is missing, such as data that have changed, is left out of the page and named on it.
    """
    runs = finished_runs(paths)
    loaded: dict[str, DataSet | str] = {}
    for one in runs:
        tell(f"reading {one.run.path.name}")
        complete(one, loaded)
        if one.model is not None and one.scored is not None:
            tell(f"predicting with {one.run.path.name}")
            one.logits = outputs(one.model, one.scored.x, machine).logits
    pictures = Pictures()
    lead = next((i for i, one in enumerate(runs) if not one.supervised_only), 0)
    groups = grouped(runs)
    firsts = {group["runs"][0] for group in groups} | {lead}
    told = []
    to_label = None
    for i, one in enumerate(runs):
        features = seen(one, machine) if i in firsts else None
        if features is not None:
            tell(f"drawing the map of {one.run.path.name}")
        told.append(
            {
                **about(one),
                "versus": versus(one, runs),
                "discriminator": discriminator(one),
                "map": the_map(features, one, pictures) if features else None,
                "mistakes": mistakes(one, pictures),
                "reliability": honesty(one),
                "missing": one.missing,
            }
        )
        if i == lead and features is not None:
            to_label = label_next(features, one, pictures)
    names = unique([one.run.path.resolve().name for one in runs])
    for name, values in zip(names, told, strict=True):
        values["name"] = name
    tell("writing pictures")
    return {
        "title": f"{runs[lead].recipe.data}: " + (names[0] if len(runs) == 1 else f"{len(runs)} runs"),
        "summary": [*told[lead]["verdict"], *(told[lead]["versus"] or {}).get("words", [])],
        "version": __version__,
        "lead": lead,
        "runs": told,
        "groups": groups,
        "next": to_label,
        "sheets": pictures.sheets(),
    }


def finished_runs(paths: Sequence[Path]) -> list[Finished]:
    """The runs in these directories, each once, and the supervised-only runs inside them."""
    inside = [path / COMPANION for path in paths if (path / COMPANION / "result.json").exists()]
    found: dict[Path, Finished] = {}
    for path in [*paths, *inside]:
        run = Run(path)
        if not path.is_dir():
            raise UserError(f"There is no directory {path}; give the directory of a finished run.")
        if (path / "recipe.json").exists() and not run.finished:
            raise UserError(f"The run in {path} is not finished; continue it with --resume.")
        result = run.result()
        found.setdefault(path.resolve(), Finished(run, run.recipe(), result, run.read_json("environment.json")))
    return list(found.values())


def unique(names: list[str]) -> list[str]:
    """The names, those that come again with a number."""
    return [n if names.count(n) == 1 else f"{n} ({names[: i + 1].count(n)})" for i, n in enumerate(names)]


def complete(one: Finished, loaded: dict[str, DataSet | str]) -> None:
    """Look for the run's data and model; what is not there any more is said in `missing`."""
    source = str(one.environment.get("source", ""))
    key = str((source, one.environment.get("shape"), one.environment.get("more_labels")))
    if key not in loaded:
        try:
            loaded[key] = load_again(one.environment)
        except (UserError, OSError, KeyError) as error:
            loaded[key] = str(error)
    data = loaded[key]
    if isinstance(data, str):
        one.missing.append(f"The data cannot be read, so there are no pictures and no predictions: {data}")
    elif data.files != one.environment.get("data"):
        one.missing.append("The data have changed since the training, so there are no pictures and no predictions.")
    else:
        one.data = data
    if not (one.run.path / "model.safetensors").exists():
        one.missing.append("The run has no model.safetensors, so there are no predictions and no map.")
    elif one.data is not None:
        try:
            one.model, _ = load_model(one.run.path)
        except UserError as error:
            one.missing.append(f"{error} There are no predictions and no map.")
    if one.data is not None:
        one.scored = one.data.test if one.part == "test" else validation_images(one.data, split_of(one))


def split_of(one: Finished) -> Any:
    """The run's split; the unlabelled images are those that are in neither list."""
    from afda.data.split import Split

    lists = one.run.read_json("split.json")
    labelled, validation = (np.array(lists[k], dtype=np.int64) for k in ("labelled", "validation"))
    others = np.arange(len(one.data.train) if one.data is not None else 0)
    return Split(labelled, np.setdiff1d(others, np.concatenate([labelled, validation])), validation)


# The verdict


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
    own = (one.run.path / COMPANION).resolve()
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
    same = f"Supervised-only, with the same {one.result['labels']:,} labels, it is {found['error']:.2f} %."
    if found["p"] is None:
        missing = "whether that is more than chance cannot be said without the predictions of both."
        return [same, f"With the unlabelled images there are {points}; {missing}"]
    split = (
        f"{found['only_this'] + found['only_other']:,} images are classified correctly by only one of the two, "
        f"{found['only_this']:,} of them by this run (exact McNemar test, p = {found['p']:.2g})."
    )
    if found["p"] >= 0.05:
        return [same, f"Whether the unlabelled images helped is unclear: {points} may be chance.", split]
    did = "helped" if found["difference"] < 0 else "did harm"
    return [same, f"The unlabelled images {did}: {points}, more than chance explains.", split]


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
    if environment.get("more_labels"):
        more += ["--more-labels", environment["more_labels"]]
    recipe = str(one.run.path / "recipe.json")
    return shlex.join(["afda", "train", str(environment.get("source")), "--recipe", recipe, "--out", "again", *more])


# How it came about


def curves(log: list[dict[str, Any]]) -> dict[str, Any]:
    """The log as pairs of update and value: terms of the loss, rates, measures, and the terms of the bound."""
    found: dict[str, Any] = {"terms": {}, "bound": {}}
    for line in log:
        for key, value in line.items():
            if isinstance(value, dict) and key == "bound":
                for term, size in value.items():
                    found["bound"].setdefault(term, []).append([line["step"], size])
            elif isinstance(value, int | float) and key not in ("step", "seconds"):
                place = found if key in NOT_TERMS else found["terms"]
                place.setdefault(key, []).append([line["step"], value])
    return found


def discriminator(one: Finished) -> dict[str, Any] | None:
    """Whether d and f are in balance, from d's accuracy: a light, what it means and what to try.

    The accuracy is the mean of those on labelled and on unlabelled images, so that 50 % is chance however few of the
    batch are labelled. It is taken before d's update, and averaged over the last fifth of the training.
    """
    line = [value for log in one.run.log() if (value := log.get("discriminator_accuracy")) is not None]
    if not line or one.recipe.align is None:
        return None
    late = mean(line[-max(1, len(line) // 5) :])
    own_rate = hasattr(one.recipe.align, "learning_rate")
    weight = one.recipe.align.weight
    weaker = f"a heavier alignment (--set align.weight={2 * weight:g})" + (
        f", or a slower discriminator (--set align.learning_rate={one.recipe.optimisation.learning_rate / 4:g})"
        if own_rate
        else ", or a smaller discriminator (--set align.hidden=256)"
    )
    stronger = f"a lighter alignment (--set align.weight={weight / 2:g})" + (
        f", or a faster discriminator (--set align.learning_rate={2 * one.recipe.optimisation.learning_rate:g})"
        if own_rate
        else ""
    )
    if max(abs(v - 0.5) for v in line) < 0.02:
        state, light = "collapsed", "bad"
        words = (
            "The discriminator never told labelled from unlabelled features: either they were alike from the beginning "
            "(see MMD²), or it has collapsed to one answer and teaches the features nothing."
        )
        advice = f"If MMD² is clearly above zero, try {stronger}."
    elif late > 0.8:
        state, light = "too strong", "bad"
        words = (
            "The discriminator tells labelled from unlabelled features most of the time: the features are not "
            "aligned, and a discriminator that is always right gives them little to learn from."
        )
        advice = f"Try {weaker}."
    elif late > 0.68:
        state, light = "rather strong", "warn"
        words = "The discriminator still finds a difference between labelled and unlabelled features."
        advice = f"If MMD² is not falling, try {weaker}, or more updates."
    elif late < 0.42:
        state, light = "too weak", "warn"
        words = (
            "The discriminator is wrong more often than chance: the features move faster than it learns, so the two "
            "chase each other."
        )
        advice = f"Try {stronger}."
    else:
        state, light = "healthy", "good"
        words = "The discriminator hardly tells labelled from unlabelled features: they are aligned, as intended."
        advice = "Nothing needs to be changed."
    return {"state": state, "light": light, "accuracy": late, "words": words, "advice": advice}


# What it looks like


@dataclass
class Pictures:
    """The images that a page shows, each once per data set; a picture is known by its number."""

    wanted: dict[int, tuple[DataSet, dict[tuple[str, int], int]]] = field(default_factory=dict)

    def of(self, data: DataSet, part: str, rows: Sequence[int]) -> list[int] | None:
        """The numbers of these images on the sheet of their data set; None if they are vectors."""
        if len(data.train.shape) != 3:
            return None
        _, numbers = self.wanted.setdefault(id(data), (data, {}))
        return [numbers.setdefault((part, int(row)), len(numbers)) for row in rows]

    def which(self, data: DataSet | None) -> int | None:
        """The sheet of a data set."""
        return list(self.wanted).index(id(data)) if id(data) in self.wanted else None

    def sheets(self) -> list[dict[str, Any]]:
        made = []
        for data, numbers in self.wanted.values():
            parts = {"train": data.train, "test": data.test, "val": data.val}
            chosen = torch.stack([parts[part].x[row] for part, row in numbers])  # type: ignore[union-attr]
            made.append(sheet(chosen.permute(0, 2, 3, 1).numpy(), MOST_PICTURES // len(self.wanted)))
        return made


@dataclass
class Seen:
    """The images of a run that are on its map, labelled ones first, and what the model makes of them."""

    rows: np.ndarray
    labelled: np.ndarray
    features: np.ndarray
    probabilities: np.ndarray


def seen(one: Finished, machine: Runtime) -> Seen | None:
    """The model's features and probabilities of all labelled and up to 5,000 unlabelled images.

    The order that these are drawn in depends on the data alone, so that runs with other labels show the same ones.
    """
    if one.data is None or one.model is None:
        return None
    parts = split_of(one)
    order = np.random.default_rng(0).permutation(len(one.data.train))
    unlabelled = order[np.isin(order, parts.unlabelled)][:UNLABELLED]
    rows = np.concatenate([parts.labelled, unlabelled])
    machine.place(one.model)
    result = outputs(one.model, one.data.train.x[torch.from_numpy(rows)], machine)
    probabilities = (result.logits / one.model.temperature).softmax(dim=1).numpy()
    return Seen(rows, np.arange(len(rows)) < len(parts.labelled), result.features.numpy(), probabilities)


def the_map(seen: Seen, one: Finished, pictures: Pictures) -> dict[str, Any] | None:
    """t-SNE of the features, with what is known of each image."""
    assert one.data is not None
    if len(seen.rows) < 10 or not seen.features.std(axis=0).any():
        one.missing.append("There is no map: the features of too few images differ.")
        return None
    points = figures.embedding(seen.features, iterations=500)
    points = points - points.min(axis=0)
    return {
        "points": np.round(10_000 * points / points.max()).astype(int).tolist(),
        "true": one.data.train.y[torch.from_numpy(seen.rows)].tolist(),
        "predicted": seen.probabilities.argmax(axis=1).tolist(),
        "confidence": np.round(seen.probabilities.max(axis=1), 3).tolist(),
        "labelled": int(seen.labelled.sum()),
        "unlabelled": one.result.get("unlabelled"),
        "pictures": pictures.of(one.data, "train", seen.rows.tolist()),
        "sheet": pictures.which(one.data),
        "names": names_of(one.data, seen.rows),
    }


def names_of(data: DataSet, rows: np.ndarray) -> list[str]:
    """The path of each training image, or its number where there are no files."""
    paths = data.paths
    return [paths[row] if paths is not None else f"image {row}" for row in rows]


def mistakes(one: Finished, pictures: Pictures) -> dict[str, Any] | None:
    """The wrong answers that the model is most sure of."""
    if one.logits is None or one.data is None or one.scored is None or one.model is None:
        return None
    recorded = np.array(one.result[one.part or ""]["confusion"])
    now = confusion(one.logits.argmax(dim=1), one.scored.y, len(recorded)).numpy()
    if differ := int(np.abs(recorded - now).sum()) // 2:
        one.missing.append(f"On this machine {differ} of the {one.part} images are predicted otherwise than recorded.")
    probabilities = (one.logits / one.model.temperature).softmax(dim=1)
    confidence, predicted = probabilities.max(dim=1)
    wrong = torch.nonzero(predicted != one.scored.y).flatten()
    surest = wrong[confidence[wrong].argsort(descending=True, stable=True)][:MISTAKES]
    held_out = split_of(one).validation
    if one.part == "test":
        shown = pictures.of(one.data, "test", surest.tolist())
    elif len(held_out):
        shown = pictures.of(one.data, "train", held_out[surest.numpy()].tolist())
    else:
        shown = pictures.of(one.data, "val", surest.tolist())
    return {
        "count": len(wrong),
        "images": surest.tolist(),
        "true": one.scored.y[surest].tolist(),
        "predicted": predicted[surest].tolist(),
        "confidence": [round(float(c), 3) for c in confidence[surest]],
        "pictures": shown,
        "sheet": pictures.which(one.data),
    }


def honesty(one: Finished) -> dict[str, Any] | None:
    """Reliability of the confidences as the softmax gives them and, if there is a temperature, with it."""
    if one.logits is None or one.scored is None or one.model is None:
        return None
    logits, right = one.logits, (one.logits.argmax(dim=1) == one.scored.y).numpy()

    def at(temperature: float) -> dict[str, Any]:
        return reliability((logits / temperature).softmax(dim=1).amax(dim=1).double().numpy(), right)

    temperature = one.model.temperature
    return {"before": at(1.0), "after": at(temperature) if temperature != 1 else None, "temperature": temperature}


# What to label next


def label_next(seen: Seen, one: Finished, pictures: Pictures) -> dict[str, Any] | None:
    """Unlabelled images whose labels would teach most: the model wavers on them, and they differ from each other.

    The most uncertain ones, by the margin between the two likeliest classes, are gathered into as many clusters of
    features as images are asked for; each gives its most uncertain one (much as in Citovsky et al., 2021).
    """
    assert one.data is not None
    rows, features, probabilities = (a[~seen.labelled] for a in (seen.rows, seen.features, seen.probabilities))
    if not len(rows):
        return None
    chosen = uncertain_and_diverse(features, probabilities, NEXT)
    ranked = np.argsort(-probabilities[chosen], axis=1, kind="stable")
    return {
        "run": one.run.path.resolve().name,
        "looked_at": len(rows),
        "unlabelled": one.result.get("unlabelled"),
        "classes": list(one.data.classes),
        "by_path": one.data.paths is not None,
        "rows": rows[chosen].tolist(),
        "names": names_of(one.data, rows[chosen]),
        "suggested": ranked[:, 0].tolist(),
        "second": ranked[:, 1].tolist(),
        "confidence": np.round(probabilities[chosen].max(axis=1), 3).tolist(),
        "pictures": pictures.of(one.data, "train", rows[chosen].tolist()),
        "sheet": pictures.which(one.data),
    }


def uncertain_and_diverse(features: np.ndarray, probabilities: np.ndarray, count: int) -> np.ndarray:
    """Indices of at most `count` images, the most uncertain first."""
    from sklearn.cluster import KMeans

    first, second = -np.partition(-probabilities, 1, axis=1)[:, :2].T
    margin = first - second
    order = np.argsort(margin, kind="stable")
    candidates = order[: max(count, min(10 * count, len(order) // 10))]
    if len(np.unique(features[candidates], axis=0)) <= count:
        return candidates[:count]
    clusters = KMeans(count, n_init=1, random_state=0).fit_predict(features[candidates])
    # The candidates are sorted, so the first of each cluster is its most uncertain one.
    return candidates[np.sort(np.unique(clusters, return_index=True)[1])]


def label_table(to_label: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The images to label next as a table that is filled in and given to the next training: its columns and rows."""
    classes, by_path = to_label["classes"], to_label["by_path"]
    keys = to_label["names"] if by_path else map(str, to_label["rows"])
    lines = zip(keys, to_label["suggested"], to_label["confidence"], strict=True)
    columns = ["path" if by_path else "row", "label", "suggested", "confidence"]
    return columns, [[key, "", classes[k], f"{confidence:.3f}"] for key, k, confidence in lines]
