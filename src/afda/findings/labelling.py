"""Which images to label next."""

from typing import Any

import numpy as np

from afda.findings.finished import Finished
from afda.findings.looks import Pictures, Seen

COUNT = 48


def label_next(seen: Seen, one: Finished, pictures: Pictures) -> dict[str, Any] | None:
    """Unlabelled images whose labels would teach most: the model wavers on them, and they differ from each other.

    The most uncertain ones, by the margin between the two likeliest classes, are gathered into as many clusters of
    features as images are asked for; each gives its most uncertain one (much as in Citovsky et al., 2021).
    """
    assert one.data is not None
    rows, features, probabilities = (a[~seen.labelled] for a in (seen.rows, seen.features, seen.probabilities))
    if not len(rows):
        return None
    chosen = uncertain_and_diverse(features, probabilities, COUNT)
    ranked = np.argsort(-probabilities[chosen], axis=1, kind="stable")
    return {
        "run": one.name,
        "looked_at": len(rows),
        "unlabelled": one.result.get("unlabelled"),
        "classes": list(one.data.classes),
        "by_path": one.data.train.paths is not None,
        "rows": one.data.train.source_rows[rows[chosen]].tolist(),
        "names": [one.data.train.name(row) for row in rows[chosen]],
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
