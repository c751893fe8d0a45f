"""Suggestions of images to label next."""

from dataclasses import dataclass

import numpy as np

from afda.report.embedding import FeatureSample
from afda.report.load_runs import LoadedRun
from afda.report.pictures import PictureCollector

COUNT = 48


@dataclass(frozen=True)
class LabelSuggestions:
    """Unlabelled images whose labels would teach the model most, one entry each."""

    run: str
    """The name of the run whose model chose them."""
    examined: int
    """Images that they were chosen from."""
    unlabelled: int
    """Unlabelled images that there are in all."""
    classes: list[str]
    by_path: bool
    """Whether images are identified by their file, or else by their row in the source."""
    rows: list[int]
    names: list[str]
    suggested: list[int]
    second: list[int]
    confidence: list[float]
    pictures: list[int] | None
    sheet: int | None
    file: str
    """The table to fill in."""


def suggest_labels(
    sample: FeatureSample, run: LoadedRun, pictures: PictureCollector, file: str
) -> LabelSuggestions | None:
    """Return unlabelled images that the model is uncertain about and that differ from each other.

    The most uncertain ones, by the margin between the two likeliest classes, are gathered into as many clusters of
    features as images are asked for; each gives its most uncertain one (much as in Citovsky et al., 2021).
    """
    assert run.data is not None
    rows, features, probabilities = (
        values[~sample.labelled] for values in (sample.rows, sample.features, sample.probabilities)
    )
    if not len(rows):
        return None
    chosen = choose_uncertain_and_diverse(features, probabilities, COUNT)
    ranked = np.argsort(-probabilities[chosen], axis=1, kind="stable")
    return LabelSuggestions(
        run=run.name,
        examined=len(rows),
        unlabelled=run.result.unlabelled,
        classes=list(run.data.classes),
        by_path=run.data.train.paths is not None,
        rows=run.data.train.source_rows[rows[chosen]].tolist(),
        names=[run.data.train.name(row) for row in rows[chosen]],
        suggested=ranked[:, 0].tolist(),
        second=ranked[:, 1].tolist(),
        confidence=np.round(probabilities[chosen].max(axis=1), 3).tolist(),
        pictures=pictures.add(run.data, "train", rows[chosen].tolist()),
        sheet=pictures.sheet_number(run.data),
        file=file,
    )


def choose_uncertain_and_diverse(features: np.ndarray, probabilities: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of at most `count` images, the most uncertain first."""
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


def make_label_table(suggestions: LabelSuggestions) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a table to fill in and give to the next training."""
    classes, by_path = suggestions.classes, suggestions.by_path
    keys = suggestions.names if by_path else map(str, suggestions.rows)
    lines = zip(keys, suggestions.suggested, suggestions.confidence, strict=True)
    columns = ["path" if by_path else "row", "label", "suggested", "confidence"]
    return columns, [[key, "", classes[k], f"{confidence:.3f}"] for key, k, confidence in lines]
