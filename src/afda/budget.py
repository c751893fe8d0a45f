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
from afda.training import Training, begin

WARM_UP, MEASURED_SECONDS, MOST_STEPS = 3, 1.5, 100
FEWEST = 50
"""Updates below which a training is not worth its name."""
RESERVE = 0.1
"""Of the time, kept for reading the data, logging and checkpoints."""


def tried(recipe: Recipe, data: DataSet, runtime: Runtime) -> Training:
    """A training to measure with and to throw away."""
    return begin(recipe.with_settings([f"steps={WARM_UP + MOST_STEPS}"]), data, runtime)


def seconds_per_step(training: Training) -> float:
    """What an update costs, from the first few."""
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


def seconds_besides(training: Training) -> float:
    """What a training costs besides its updates, before the first of them: making the images ready, and looking at
    them, twenty times at a sample while training and once at nearly all."""
    data, parts = training.data, training.split
    started = time.monotonic()
    training.batch(0)
    settle()
    until_ready = time.monotonic() - started
    model, sample = training.model(), data.train.x[:500]
    outputs(model, sample[:50], training.runtime)
    started = time.monotonic()
    outputs(model, sample, training.runtime)
    per_image = (time.monotonic() - started) / len(sample)
    validation = validation_images(data, parts)
    held_out = [0 if part is None else len(part) for part in (validation, data.test)]
    kinds = [len(parts.labelled), len(parts.unlabelled)]
    traced = sum(min(count, TRACED) for count in (*kinds, held_out[0]))
    looked_at = 20 * traced + sum(min(count, MEASURED) for count in kinds) + sum(held_out)
    return until_ready + per_image * looked_at


def steps_within(
    minutes: float, recipes: Sequence[Recipe], data: DataSet, runtime: Runtime, started: float | None = None
) -> int:
    """The number of updates with which all these recipes together end in time, which runs since `started`."""
    started = time.monotonic() if started is None else started
    per_step = besides = 0.0
    for recipe in recipes:
        training = tried(recipe, data, runtime)
        runtime = training.runtime  # the others are trained in the precision of the first
        besides += seconds_besides(training)
        per_step += seconds_per_step(training)
    found = int((60 * minutes * (1 - RESERVE) - besides - (time.monotonic() - started)) / per_step)
    if found < FEWEST:
        needed = (FEWEST * per_step + besides + time.monotonic() - started) / (60 * (1 - RESERVE))
        raise UserError(
            f"Within --minutes {minutes:g} this machine can do only {max(found, 0)} updates; give it at least "
            f"--minutes {math.ceil(1.5 * needed)}, or smaller images (--size) or a narrower net (--set net.width=...)."
        )
    return found
