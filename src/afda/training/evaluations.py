"""How often a classifier is evaluated during its training, and on how many images: never much of the work."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from afda.data.images import DataSet
from afda.data.split import Split
from afda.recipe import Recipe
from afda.runs.results import FINAL_SAMPLE, PROGRESS_SAMPLE

LOG_LINES = 100
"""Lines of the log of a whole training."""
PASSES_PER_UPDATE = 3
"""What an image costs in an update, in forward passes, at least: forward once, and backward as long as twice that."""
LARGEST_SHARE = 1 / 30
"""Of the work of all updates: what evaluations during a training may take."""
FREE_PIXELS = 6_000_000
"""Pixels that may be evaluated during a training however short it is: 2,600 images of 48x48, all of tiny ones."""
SAMPLES = (PROGRESS_SAMPLE, 1000, 500)
INTERVALS = (5, 10, 20, 50)


@dataclass(frozen=True)
class EvaluationPlan:
    """When a classifier is evaluated during a training, and on how many images of each kind."""

    interval: int
    """Lines of the log between two evaluations; the last line always has one."""
    sample: int
    """The most labelled, unlabelled and validation images, of each kind."""

    def count_images(self, kinds: Sequence[int]) -> int:
        """Return how many images are evaluated in a whole training, from how many there are of each kind."""
        return LOG_LINES // self.interval * sum(min(count, self.sample) for count in kinds)


def plan_evaluations(recipe: Recipe, data: DataSet, split: Split) -> EvaluationPlan:
    """Return the most frequent evaluation on the largest samples whose work is a small share of that of the updates.

    It follows from counts alone, so that a training that is continued elsewhere has the same log.
    """
    kinds = count_evaluated(data, split)[:3]
    allowed = max(
        FREE_PIXELS / math.prod(data.train.shape[1:]),
        LARGEST_SHARE * PASSES_PER_UPDATE * recipe.steps * recipe.images_per_step,
    )
    plans = [EvaluationPlan(interval, sample) for interval in INTERVALS for sample in SAMPLES]
    return next((plan for plan in plans if plan.count_images(kinds) <= allowed), plans[-1])


def count_evaluated(data: DataSet, split: Split) -> list[int]:
    """Return the numbers of labelled, unlabelled, validation and test images."""
    val, test = (0 if part is None else len(part) for part in (data.val, data.test))
    return [len(split.labelled), len(split.unlabelled), len(split.validation) or val, test]


def count_final(data: DataSet, split: Split) -> int:
    """Return how many images are evaluated after the last update."""
    labelled, unlabelled, *held_out = count_evaluated(data, split)
    return min(labelled, FINAL_SAMPLE) + min(unlabelled, FINAL_SAMPLE) + sum(held_out)
