"""How long a training takes on this machine, measured, and how many updates fit into a given time."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

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
TRIALS = 0.4
"""Share of a given time in which the candidates of an automatic choice are compared."""
LONGEST_TRIAL = {"vectors": 0.5, "images": 0.25}
"""The length of a trial as a share of the final training, at most; perceptrons for vectors take seconds."""
ROUNDS = 3
"""Folds that all candidates should be able to complete in the time of the trials."""


@dataclass(frozen=True)
class SelectionPlan:
    """How an automatic choice divides the time."""

    steps: int | None
    """Updates of the final training; None leaves them as they are."""
    seconds: float | None
    """Time for the trials; None for as long as they take."""
    share: float
    """The length of a trial as a share of the final training."""


def plan_selection(
    recipes: Sequence[Recipe], data: DataSet, runtime: Runtime, minutes: float | None, started: float
) -> SelectionPlan:
    """Divide the time, or that of a final training if none is given, between trials and the final training.

    Only the slowest candidate is measured. The time runs since `started`, a reading of the monotonic clock.
    """
    kind = "vectors" if len(data.train.shape) == 1 else "images"
    if kind == "vectors" and minutes is None:
        return SelectionPlan(None, None, LONGEST_TRIAL[kind])
    slowest = max(recipes, key=lambda recipe: (recipe.images_per_step, len(recipe.objectives)))
    training = start_trial(slowest, data, runtime)
    overhead, per_step = measure_overhead_seconds(training), measure_step_seconds(training)
    steps: int | None = None
    if minutes is None:
        seconds = max(60.0, slowest.steps * per_step)
    else:
        left = 60 * minutes * (1 - RESERVE) - overhead - (time.monotonic() - started)
        seconds, count = TRIALS * left, int((1 - TRIALS) * left / per_step)
        if count < FEWEST_STEPS:
            raise refuse_minutes(minutes, count, (FEWEST_STEPS * per_step) / (1 - TRIALS) + overhead)
        steps = count if kind == "images" else min(count, slowest.steps)
    images = sum(recipe.images_per_step for recipe in recipes) / slowest.images_per_step
    length = ROUNDS * images * per_step * (steps or slowest.steps)
    return SelectionPlan(steps, seconds, min(LONGEST_TRIAL[kind], max(seconds / length, 1e-3)))


def refuse_minutes(minutes: float, count: int, needed: float) -> UserError:
    """Return the error for a time that is enough for too few updates; `needed` is in seconds."""
    return UserError(
        f"--minutes {minutes:g} is enough for {max(count, 0)} updates only on this machine; give it at least "
        f"--minutes {math.ceil(1.5 * needed / (60 * (1 - RESERVE)))}, or use smaller images (--size) or a narrower net "
        "(--set net.width=...)."
    )


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
        raise refuse_minutes(minutes, count, FEWEST_STEPS * per_step + overhead + time.monotonic() - started)
    return count
