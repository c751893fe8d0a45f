"""How long a training takes on this machine, measured, and how many updates fit into a given time."""

import math
import time
from collections.abc import Sequence

from afda.data.images import DataSet
from afda.errors import UserError
from afda.machine.runtime import Runtime, synchronize
from afda.recipe import Recipe
from afda.runs.model import compute_outputs
from afda.runs.results import FINAL_SAMPLE, PROGRESS_SAMPLE, select_validation
from afda.training.loop import run_updates
from afda.training.state import Training, begin

WARM_UP_STEPS, MEASURED_SECONDS, MOST_STEPS = 3, 1.5, 100
FEWEST_STEPS = 50
"""Updates below which a training is refused."""
RESERVE = 0.1
"""Share of the time kept for reading the data, logging and checkpoints."""
TRACES = 20
"""Evaluations during a training."""


def start_trial(recipe: Recipe, data: DataSet, runtime: Runtime) -> Training:
    """Return a training to measure with and to throw away."""
    return begin(recipe.with_settings([f"steps={WARM_UP_STEPS + MOST_STEPS}"]), data, runtime)


def measure_step_seconds(training: Training) -> float:
    """Return the seconds per update, measured on the first few."""
    updates = run_updates(training)
    for _ in range(WARM_UP_STEPS):
        next(updates)
    synchronize()
    started = time.monotonic()
    spent = 0.0
    while spent < MEASURED_SECONDS and training.step < WARM_UP_STEPS + MOST_STEPS:
        next(updates)
        synchronize()
        spent = time.monotonic() - started
    return spent / (training.step - WARM_UP_STEPS)


def measure_overhead_seconds(training: Training) -> float:
    """Return the seconds that a training takes besides its updates: preparing the images and evaluating.

    It evaluates a sample of the images twenty times while training, and nearly all of them at the end. Call it before
    the first update.
    """
    data, split = training.data, training.split
    started = time.monotonic()
    _ = training.batches.draw(0).u
    synchronize()
    preparation = time.monotonic() - started
    model, sample = training.make_model(), data.train.x[:500]
    compute_outputs(model, sample[:50], training.runtime)
    started = time.monotonic()
    compute_outputs(model, sample, training.runtime)
    per_image = (time.monotonic() - started) / len(sample)
    validation = select_validation(data, split)
    held_out = [0 if part is None else len(part) for part in (validation, data.test)]
    training_images = [len(split.labelled), len(split.unlabelled)]
    traced = sum(min(count, PROGRESS_SAMPLE) for count in (*training_images, held_out[0]))
    evaluated = TRACES * traced + sum(min(count, FINAL_SAMPLE) for count in training_images) + sum(held_out)
    return preparation + per_image * evaluated


def fit_steps(
    minutes: float, recipes: Sequence[Recipe], data: DataSet, runtime: Runtime, started: float | None = None
) -> int:
    """Return the number of updates with which all these recipes together end within the time.

    The time runs since `started`, a reading of the monotonic clock; by default since now.
    """
    started = time.monotonic() if started is None else started
    per_step = overhead = 0.0
    for recipe in recipes:
        training = start_trial(recipe, data, runtime)
        runtime = training.runtime  # the others are trained in the precision of the first
        overhead += measure_overhead_seconds(training)
        per_step += measure_step_seconds(training)
    count = int((60 * minutes * (1 - RESERVE) - overhead - (time.monotonic() - started)) / per_step)
    if count < FEWEST_STEPS:
        needed = (FEWEST_STEPS * per_step + overhead + time.monotonic() - started) / (60 * (1 - RESERVE))
        raise UserError(
            f"--minutes {minutes:g} is enough for {max(count, 0)} updates only on this machine; give it at least "
            f"--minutes {math.ceil(1.5 * needed)}, or use smaller images (--size) or a narrower net "
            "(--set net.width=...)."
        )
    return count
