"""A quick estimate of the class shares of unlabelled images, before any training."""

from dataclasses import dataclass

import torch

from afda.data.images import DataSet
from afda.data.shares import estimate_shares
from afda.machine.runtime import Runtime
from afda.measures import error_rate, fit_temperature
from afda.recipe import Recipe
from afda.recipes import OWN, recipe
from afda.runs.results import sample_rows
from afda.training.held_out import train_folds

SAMPLE = 5000
"""Unlabelled images that are classified at most."""
FEWEST_PER_CLASS = 2
"""Labels per class on average below which nothing is estimated."""
MOST_ERROR = 40.0
"""The cross-validated error in percent above which predictions say too little about shares."""


@dataclass(frozen=True)
class QuickShares:
    """Estimated shares of the classes among unlabelled images, and the error of the classifier behind them."""

    shares: dict[str, float]
    error: float
    """Of the linear classifier, cross-validated, in percent."""


def estimate_pool_shares(data: DataSet, asked: Recipe, runtime: Runtime) -> QuickShares | None:
    """Return class shares by a linear classifier and EM; None where that would be a guess.

    It is trained on the labels that `asked` keeps, five times without a fifth of them. Predictions for these calibrate
    those for the unlabelled images.
    """
    split, classes = asked.split_of(data), len(data.classes)
    if not len(split.unlabelled) or len(split.labelled) < FEWEST_PER_CLASS * classes:
        return None
    made = recipe(f"{OWN}-linear", data, "supervised", "none", asked.labels).with_settings([f"seed={asked.seed}"])
    pool = sample_rows(split.unlabelled, SAMPLE, asked.seed)
    folds = list(train_folds(made, data, split, pool, runtime, made.steps))
    if not folds:
        return None
    held_out, y = torch.cat([fold.held_out.logits for fold in folds]), torch.cat([fold.y for fold in folds])
    error = error_rate(held_out.argmax(dim=1), y)
    if error >= MOST_ERROR:
        return None
    temperature = fit_temperature(held_out, y)
    predictions = torch.stack([(fold.pool.logits.double() / temperature).softmax(dim=1) for fold in folds]).mean(dim=0)
    labelled = data.train.y[torch.from_numpy(split.labelled)].bincount(minlength=classes).double()
    shares = estimate_shares(predictions, labelled / labelled.sum())
    return QuickShares(
        {name: round(share, 4) for name, share in zip(data.classes, shares.tolist(), strict=True)}, round(error, 1)
    )
