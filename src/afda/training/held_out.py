"""Nets trained on the labels alone, each without those of a fold, and what they make of images that they did not see.

To such a net, the labelled images of the fold are as new as the unlabelled ones. So they show what predictions and
features to expect of unlabelled images of the same kind, which the labelled images of a whole training do not: these
are fitted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from afda.data.images import UNLABELLED, DataSet
from afda.data.split import Split
from afda.machine.runtime import Runtime
from afda.nets import Output
from afda.recipe import Recipe
from afda.runs.model import compute_outputs
from afda.training.baseline import make_baseline
from afda.training.folds import make_folds
from afda.training.loop import run_updates
from afda.training.state import begin


@dataclass(frozen=True)
class FoldOutputs:
    """The outputs of a net that was trained without the labels of a fold."""

    labelled: Output
    """For the images that it was trained on."""
    held_out: Output
    """For the labelled images of the fold."""
    y: Tensor
    """The classes of the fold."""
    pool: Output
    """For unlabelled images."""


def train_folds(
    recipe: Recipe, data: DataSet, split: Split, pool: np.ndarray, runtime: Runtime, steps: int
) -> Iterator[FoldOutputs]:
    """Train the recipe's net on the labels alone for some updates, without one fold after the other."""
    hidden_recipe = make_baseline(recipe).with_settings([f"steps={steps}", "labels=null", "validation=false"])
    hidden_recipe = hidden_recipe.with_settings(["logit_adjustment=0", "sampling=natural"])
    truth = data.train.y
    for fold in make_folds(split.labelled, truth.numpy(), recipe.seed, data.train.groups):
        kept = np.setdiff1d(split.labelled, fold)
        y = torch.full_like(truth, UNLABELLED)
        y[kept] = truth[kept]
        training = begin(hidden_recipe, replace(data, train=replace(data.train, y=y), val=None, test=None), runtime)
        for _ in run_updates(training):
            pass
        model, x = training.make_model(), data.train.x
        parts = (compute_outputs(model, x, training.runtime, rows=torch.from_numpy(r)) for r in (kept, fold, pool))
        labelled, held_out, of_pool = parts
        yield FoldOutputs(labelled, held_out, truth[fold], of_pool)
