"""How long a training takes on this machine, measured, and how many updates fit into a given time."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from afda.data.images import DataSet
from afda.errors import UserError
from afda.machine.runtime import Runtime, synchronize
from afda.recipe import Recipe
from afda.runs.model import compute_outputs
from afda.training.evaluations import count_evaluated, count_final, plan_evaluations
from afda.training.loop import run_updates
from afda.training.state import Training, begin

WARM_UP_STEPS, MEASURED_SECONDS, MOST_STEPS = 3, 1.5, 100
FEWEST_STEPS = 50
"""Updates below which a training is refused."""
EVALUATED = 200
"""Images whose evaluation is timed."""
RESERVE = 0.05
"""Share of the time kept for logging, checkpoints and a machine that slows down."""
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
    fits: bool = True
    """Whether there is time for one trial of every candidate."""


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
    costs = measure_costs(training)
    steps: int | None = None
    if minutes is None:
        seconds = max(60.0, slowest.steps * costs.per_step)
    else:
        spent = time.monotonic() - started
        left = 60 * minutes * (1 - RESERVE) - spent
        seconds = TRIALS * left

        def compute_seconds(steps: int) -> float:
            return costs.compute_seconds(slowest.model_copy(update={"steps": steps}), training)

        count = find_most_steps(compute_seconds, left - seconds)
        if count < FEWEST_STEPS:
            raise refuse_minutes(minutes, count, compute_seconds(FEWEST_STEPS) / (1 - TRIALS) + spent)
        steps = count if kind == "images" else min(count, slowest.steps)
    images = sum(recipe.images_per_step for recipe in recipes) / slowest.images_per_step
    length = ROUNDS * images * costs.per_step * (steps or slowest.steps)
    fits = minutes is None or images * costs.per_step * FEWEST_STEPS <= seconds
    return SelectionPlan(steps, seconds, min(LONGEST_TRIAL[kind], max(seconds / length, 1e-3)), fits)


def refit_steps(recipe: Recipe, minutes: float, data: DataSet, runtime: Runtime, started: float) -> Recipe:
    """Return the recipe with the updates that fit into the time that is left; vectors need no more than their own."""
    try:
        steps = fit_steps(minutes, [recipe], data, runtime, started)
    except UserError:  # the comparison has used up the time
        steps = FEWEST_STEPS
    is_vectors = len(data.train.shape) == 1 or recipe.net.name() == "linear"
    return recipe.with_settings([f"steps={min(steps, recipe.steps) if is_vectors else steps}"])


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


@dataclass(frozen=True)
class Costs:
    """What a training costs in seconds, measured on this machine."""

    per_step: float
    per_image: float
    """Of evaluating one image."""
    preparation: float
    """Before the first update."""

    def compute_seconds(self, recipe: Recipe, training: Training) -> float:
        """Return the seconds of a whole training with the steps of this recipe."""
        data, split = training.data, training.split
        plan = plan_evaluations(recipe, data, split)
        evaluated = plan.count_images(count_evaluated(data, split)[:3]) + count_final(data, split)
        return self.preparation + recipe.steps * self.per_step + evaluated * self.per_image


def measure_costs(training: Training, per_image: float | None = None) -> Costs:
    """Measure the costs of a training that has not begun; those of evaluating only if they are not known."""
    started = time.monotonic()
    _ = training.batches.draw(0).u
    synchronize()
    preparation = time.monotonic() - started
    if per_image is None:
        per_image = measure_evaluation_seconds(training)
    return Costs(measure_step_seconds(training), per_image, preparation)


def measure_evaluation_seconds(training: Training) -> float:
    """Return the seconds that it takes to evaluate one image."""
    model, sample = training.make_model(), training.data.train.x[:EVALUATED]
    compute_outputs(model, sample[:50], training.runtime)
    started = time.monotonic()
    compute_outputs(model, sample, training.runtime)
    return (time.monotonic() - started) / len(sample)


def fit_steps(
    minutes: float, recipes: Sequence[Recipe], data: DataSet, runtime: Runtime, started: float | None = None
) -> int:
    """Return the number of updates with which all these recipes together end within the time.

    The time runs since `started`, a reading of the monotonic clock; by default since now.
    """
    started = time.monotonic() if started is None else started
    measured: list[tuple[Recipe, Training, Costs]] = []
    for recipe in recipes:
        training = start_trial(recipe, data, runtime)
        runtime = training.runtime  # the others are trained in the precision of the first
        same_net = [costs.per_image for other, _, costs in measured if other.net == recipe.net]
        measured.append((recipe, training, measure_costs(training, *same_net[:1])))

    def compute_seconds(steps: int) -> float:
        return sum(
            costs.compute_seconds(recipe.model_copy(update={"steps": steps}), training)
            for recipe, training, costs in measured
        )

    spent = time.monotonic() - started
    count = find_most_steps(compute_seconds, 60 * minutes * (1 - RESERVE) - spent)
    if count < FEWEST_STEPS:
        raise refuse_minutes(minutes, count, compute_seconds(FEWEST_STEPS) + spent)
    return count


def find_most_steps(compute_seconds: Callable[[int], float], limit: float) -> int:
    """Return the most steps, up to a billion, that take no longer than the limit; 0 if none do."""
    low, high = 0, 10**9
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if compute_seconds(middle) <= limit else (low, middle - 1)
    return low
