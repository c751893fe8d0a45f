"""What a run looks like: the map of its features, its mistakes and its confidences."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from afda.data.images import DataSet
from afda.findings.finished import Finished, split_of
from afda.inference import answers, outputs
from afda.measures import confusion
from afda.report import figures
from afda.report.chance import reliability
from afda.report.pictures import sheet
from afda.runtime import Runtime

LABELLED = UNLABELLED = 5000
"""Images of a kind on the map, as in the paper's figures; those without a label are looked through for some to label
next."""
MISTAKES = 24
MOST_PICTURES = 14_000_000
"""Characters of a page that its pictures may take; with all else it stays below 20 MB."""


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
    """The model's features and probabilities of up to 5,000 labelled and 5,000 unlabelled images.

    The order that these are drawn in depends on the data alone, so that runs with other labels show the same ones.
    """
    if one.data is None or one.model is None:
        return None
    parts = split_of(one)
    order = np.random.default_rng(0).permutation(len(one.data.train))
    unlabelled = order[np.isin(order, parts.unlabelled)][:UNLABELLED]
    labelled = np.sort(np.random.default_rng(0).permutation(parts.labelled)[:LABELLED])
    rows = np.concatenate([labelled, unlabelled])
    machine.place(one.model)
    result = outputs(one.model, one.data.train.x, machine, rows=torch.from_numpy(rows))
    probabilities = answers(one.model, result.logits).numpy()
    return Seen(rows, np.arange(len(rows)) < len(labelled), result.features.numpy(), probabilities)


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
        "names": [one.data.train.name(row) for row in seen.rows],
    }


def mistakes(one: Finished, pictures: Pictures) -> dict[str, Any] | None:
    """The wrong answers that the model is most sure of."""
    if one.logits is None or one.data is None or one.scored is None or one.model is None:
        return None
    recorded = np.array(one.result[one.part or ""]["confusion"])
    now = confusion(one.logits.argmax(dim=1), one.scored.y, len(recorded)).numpy()
    if differ := int(np.abs(recorded - now).sum()) // 2:
        one.missing.append(
            f"On this machine at least {differ} of the {one.part} images are predicted otherwise than recorded."
        )
    probabilities = answers(one.model, one.logits)
    confidence, predicted = probabilities.max(dim=1)
    wrong = torch.nonzero(predicted != one.scored.y).flatten()
    surest = wrong[confidence[wrong].argsort(descending=True, stable=True)][:MISTAKES]
    held_out = split_of(one).validation
    names = [one.scored.name(row) for row in surest.tolist()]
    if one.part == "test":
        shown = pictures.of(one.data, "test", surest.tolist())
    elif len(held_out):
        shown = pictures.of(one.data, "train", held_out[surest.numpy()].tolist())
    else:
        shown = pictures.of(one.data, "val", surest.tolist())
    return {
        "count": len(wrong),
        "names": names,
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
