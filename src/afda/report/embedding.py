"""The embedding: features of labelled and unlabelled images in two dimensions."""

from dataclasses import dataclass

import numpy as np
import torch

from afda.machine.runtime import Runtime
from afda.report.load_runs import LoadedRun
from afda.report.pictures import PictureCollector
from afda.runs.model import compute_outputs, compute_probabilities

LABELLED = UNLABELLED = 5000
"""Images of a kind in the embedding, as in the paper's figures; labels are suggested for the unlabelled ones."""
FEWEST = 10
SIDE = 10_000
"""Points are whole numbers up to this."""


@dataclass(frozen=True)
class FeatureSample:
    """Training images of a run, labelled ones first, with the model's features and probabilities."""

    rows: np.ndarray
    labelled: np.ndarray
    features: np.ndarray
    probabilities: np.ndarray


@dataclass(frozen=True)
class Embedding:
    """One entry per image, labelled ones first."""

    points: list[list[int]]
    true: list[int]
    predicted: list[int]
    confidence: list[float]
    names: list[str]
    labelled: int
    """How many of them are labelled."""
    unlabelled: int
    """Unlabelled images that there are in all."""
    pictures: list[int] | None
    sheet: int | None


def sample_features(run: LoadedRun, runtime: Runtime) -> FeatureSample | None:
    """Return the model's features and probabilities for up to 5,000 labelled and 5,000 unlabelled images.

    The order that these are drawn in depends on the data alone, so that runs with other labels show the same images.
    """
    if run.data is None or run.model is None or run.split is None:
        return None
    order = np.random.default_rng(0).permutation(len(run.data.train))
    unlabelled = order[np.isin(order, run.split.unlabelled)][:UNLABELLED]
    labelled = np.sort(np.random.default_rng(0).permutation(run.split.labelled)[:LABELLED])
    rows = np.concatenate([labelled, unlabelled])
    output = compute_outputs(run.model, run.data.train.x, runtime, rows=torch.from_numpy(rows))
    probabilities = compute_probabilities(run.model, output.logits).numpy()
    return FeatureSample(rows, np.arange(len(rows)) < len(labelled), output.features.numpy(), probabilities)


def embed_images(sample: FeatureSample, run: LoadedRun, pictures: PictureCollector) -> Embedding | None:
    """Return the embedding of the sample; None if the features of too few images differ."""
    assert run.data is not None
    if len(sample.rows) < FEWEST or not sample.features.std(axis=0).any():
        return None
    points = embed_features(sample.features, iterations=500)
    points = points - points.min(axis=0)
    return Embedding(
        points=np.round(SIDE * points / points.max()).astype(int).tolist(),
        true=run.data.train.y[torch.from_numpy(sample.rows)].tolist(),
        predicted=sample.probabilities.argmax(axis=1).tolist(),
        confidence=np.round(sample.probabilities.max(axis=1), 3).tolist(),
        names=[run.data.train.name(row) for row in sample.rows],
        labelled=int(sample.labelled.sum()),
        unlabelled=run.result.unlabelled,
        pictures=pictures.add(run.data, "train", sample.rows.tolist()),
        sheet=pictures.sheet_number(run.data),
    )


def embed_features(features: np.ndarray, seed: int = 0, iterations: int = 1000) -> np.ndarray:
    """Return the t-SNE embedding of features in two dimensions."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(features) - 1) / 3)
    distinct = np.ptp(features, axis=0).max() > 1e-6 * np.abs(features).max()
    init = "pca" if distinct else "random"  # features that are all the same have no principal axes
    tsne = TSNE(2, perplexity=perplexity, init=init, random_state=seed, n_jobs=-1, max_iter=iterations)
    embedded: np.ndarray = tsne.fit_transform(features)
    return embedded
