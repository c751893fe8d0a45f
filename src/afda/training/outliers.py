"""Outliers in the pool: unlabelled images that are unlike the labelled ones are drawn less often.

An image is as unlike as its features are from those of the nearest labelled image, by the cosine, to a net trained on
the labels alone: later in a training with unlabelled images, these are pulled towards the classes, wherever they
belong. Labelled images whose labels a net did not have tell how unlike an image of the classes may be
(`afda.training.held_out`).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from afda.data.shares import estimate_shares, weigh_classes
from afda.training.held_out import FoldOutputs, train_folds
from afda.training.state import Training

FEWEST_LABELS = 20
"""With fewer held-out labels there are too few images to compare with."""
STEPS = 100
"""Updates of the nets that are trained on the labels alone."""
TAIL = 0.2
"""The share of held-out labelled images that count as far away when outliers are counted."""
NOISE = 3.0
"""Standard errors by which more unlabelled images than that must be as far away, or there are none."""
BINS = 10
"""Bins of p-values."""
SHARPNESS = 2
"""The power of the probability to belong there that is the weight. On tuning seeds 4 was worse; 1 did better with 5
labels per class and 2 with 20, and their means are the same."""


@dataclass(frozen=True)
class PoolWeights:
    """The weights of the unlabelled images, from 0 to 1, and the estimated share of outliers among them."""

    weights: Tensor
    share: float


def weigh_pool(training: Training) -> None:
    """Estimate the weights with which unlabelled images are drawn, if the recipe wants them and they are not known."""
    recipe, split, data = training.recipe, training.split, training.data
    if recipe.outliers == "keep" or not recipe.uses_unlabelled or training.pool_weights is not None:
        return
    found = PoolWeights(torch.ones(len(split.unlabelled), dtype=torch.float64), 0.0)
    if len(split.labelled) >= FEWEST_LABELS:
        steps = min(STEPS, recipe.steps)
        folds = list(train_folds(recipe, data, split, split.unlabelled, training.runtime, steps))
        labels = data.train.y[torch.from_numpy(split.labelled)]
        found = estimate_weights(folds, labels.bincount(minlength=len(data.classes)).double())
    training.set_pool_weights(found.weights, found.share)


def estimate_weights(folds: list[FoldOutputs], labels: Tensor) -> PoolWeights:
    """Return the weights of the unlabelled images; all are exactly 1 if there seem to be no outliers.

    `labels` are the numbers of labels by class. An unlabelled image's p-value is the share of held-out labelled images
    that are as unlike, where classes count as much as they are estimated to have unlabelled images. Without outliers
    p-values are uniform; with them small ones are more frequent. How probable it is that an image belongs to the
    classes is the share of such images among those of its p-value (the local false discovery rate of Efron et al.,
    2001).
    """
    held_out = torch.cat([measure_distance(fold, fold.held_out.features) for fold in folds])
    distances = torch.stack([measure_distance(fold, fold.pool.features) for fold in folds])
    ones = PoolWeights(torch.ones(distances.shape[1], dtype=torch.float64), 0.0)
    if len(held_out) < FEWEST_LABELS:
        return ones
    predictions = torch.stack([fold.pool.logits.double().softmax(dim=1) for fold in folds]).mean(dim=0)
    shares = labels / labels.sum()
    counts = weigh_classes(estimate_shares(predictions, shares), shares)[torch.cat([fold.y for fold in folds])]
    p = compute_p_values(distances, held_out, counts)
    # Held-out and unlabelled images are both samples.
    variance = float(counts.square().sum() / counts.sum() ** 2) + 1 / distances.shape[1]
    noise = math.sqrt(TAIL * (1 - TAIL) * variance)
    far = float((p <= TAIL).double().mean())
    if far - TAIL <= NOISE * noise:
        return ones
    # As if all outliers were far away (Storey, 2002); some image must be left to draw.
    inside = max(min(1.0, (1 - far) / (1 - TAIL)), 1 / distances.shape[1])
    density = fit_decreasing_density(p.flatten().numpy())
    bins = (p * BINS).ceil().long().clamp(1, BINS) - 1
    belonging = torch.from_numpy(np.minimum(1.0, inside / density))[bins].mean(dim=0)
    return PoolWeights(belonging**SHARPNESS, 1 - inside)


def measure_distance(fold: FoldOutputs, features: Tensor) -> Tensor:
    """Return one minus the cosine between features and those of the nearest image that the net was trained on."""
    known = normalize(fold.labelled.features.double()).T
    return torch.cat([1 - (normalize(part.double()) @ known).amax(dim=1) for part in features.split(4096)])


def compute_p_values(distances: Tensor, held_out: Tensor, counts: Tensor) -> Tensor:
    """Return the weighted share of held-out images, and of the image itself, that are at least as far away."""
    order = held_out.argsort(descending=True)
    farther = torch.cat([torch.zeros(1, dtype=torch.float64), counts[order].double().cumsum(0)])
    number = torch.searchsorted(-held_out[order].contiguous(), -distances.contiguous(), right=True)
    unit = float(counts.mean())
    return (farther[number] + unit) / (farther[-1] + unit)


def fit_decreasing_density(p: np.ndarray) -> np.ndarray:
    """Return a decreasing density of p-values in bins of equal width, relative to the uniform one."""
    from sklearn.isotonic import IsotonicRegression

    counts, _ = np.histogram(p, bins=BINS, range=(0, 1))
    fitted: np.ndarray = IsotonicRegression(increasing=False).fit_transform(np.arange(BINS), counts * BINS / len(p))
    return fitted.clip(min=1e-6)
