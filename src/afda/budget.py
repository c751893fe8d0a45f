"""How long trainings take on this machine, measured, and how many updates fit into the time there is."""

import math
import time
from collections.abc import Sequence

from afda.algorithm import steps
from afda.data.images import DataSet
from afda.errors import UserError
from afda.inference import outputs
from afda.recipe import Recipe
from afda.results import MEASURED, TRACED, validation_images
from afda.runtime import Runtime, settle
from afda.training import begin

WARM_UP, MEASURED_SECONDS, MOST_STEPS = 3, 1.5, 100
FEWEST = 50
"""Updates below which a training is not worth its name."""
RESERVE = 0.1
"""Of the time, kept for reading the data, logging and checkpoints."""


def seconds_per_step(recipe: Recipe, data: DataSet, runtime: Runtime) -> float:
    """What an update costs, from the first few of a training that is thrown away."""
    training = begin(recipe.with_settings([f"steps={WARM_UP + MOST_STEPS}"]), data, runtime)
    updates = steps(training)
    for _ in range(WARM_UP):
        next(updates)
    settle()
    started = time.monotonic()
    spent = 0.0
    while spent < MEASURED_SECONDS and training.step < WARM_UP + MOST_STEPS:
        next(updates)
        settle()
        spent = time.monotonic() - started
    return spent / (training.step - WARM_UP)


def seconds_at_the_end(recipe: Recipe, data: DataSet, runtime: Runtime) -> float:
    """What looking at the images costs: twenty times at a sample while training, and once at nearly all."""
    model = begin(recipe, data, runtime).model()
    sample = data.train.x[:500]
    outputs(model, sample[:50], runtime)
    started = time.monotonic()
    outputs(model, sample, runtime)
    per_image = (time.monotonic() - started) / len(sample)
    parts = recipe.split_of(data)
    validation = validation_images(data, parts)
    held_out = [0 if part is None else len(part) for part in (validation, data.test)]
    kinds = [len(parts.labelled), len(parts.unlabelled)]
    traced = sum(min(count, TRACED) for count in (*kinds, held_out[0]))
    return per_image * (20 * traced + sum(min(count, MEASURED) for count in kinds) + sum(held_out))


def steps_within(
    minutes: float, recipes: Sequence[Recipe], data: DataSet, runtime: Runtime, started: float | None = None
) -> int:
    """The number of updates with which all these recipes together end in time, which runs since `started`."""
    started = time.monotonic() if started is None else started
    per_step = sum(seconds_per_step(recipe, data, runtime) for recipe in recipes)
    at_the_end = sum(seconds_at_the_end(recipe, data, runtime) for recipe in recipes)
    found = int((60 * minutes * (1 - RESERVE) - at_the_end - (time.monotonic() - started)) / per_step)
    if found < FEWEST:
        needed = (FEWEST * per_step + at_the_end + time.monotonic() - started) / (60 * (1 - RESERVE))
        raise UserError(
            f"Within --minutes {minutes:g} this machine can do only {max(found, 0)} updates; give it at least "
            f"--minutes {math.ceil(1.5 * needed)}, or smaller images (--size) or a narrower net (--set net.width=...)."
        )
    return found
