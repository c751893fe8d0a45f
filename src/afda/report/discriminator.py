"""The discriminator panel: whether the discriminator d and the features f are in balance."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from afda.recipe import Recipe
from afda.runs.log import LogLine
from afda.training.alarms import ONE_ANSWER, PATIENCE

AT_CHANCE = 0.02
"""How near to 0.5 the accuracy stays of a discriminator that never separated anything."""
STRONG, RATHER_STRONG, WEAK = 0.8, 0.68, 0.42
"""Accuracies that bound the states."""


@dataclass(frozen=True)
class DiscriminatorState:
    """A light, what it means and what to try."""

    state: str
    light: Literal["good", "warn", "bad"]
    accuracy: float
    explanation: str
    advice: str


def assess_discriminator(log: Sequence[LogLine], recipe: Recipe) -> DiscriminatorState | None:
    """Return the state of a run's discriminator, from its accuracy in the log; None if it has none.

    The accuracy is the mean of those on labelled and on unlabelled images, so that 50 % is chance however few of the
    batch are labelled. It is taken before d's update, and averaged over the last fifth of the training.
    """
    accuracies = [value for line in log if (value := line.values.get("discriminator_accuracy")) is not None]
    if not accuracies or recipe.align is None:
        return None
    late = mean(accuracies[-max(1, len(accuracies) // 5) :])
    weight = recipe.align.weight
    last = accuracies[-PATIENCE:]
    if len(last) == PATIENCE and max(abs(accuracy - 0.5) for accuracy in last) <= ONE_ANSWER:
        return DiscriminatorState(
            "collapsed",
            "bad",
            late,
            "At the end the discriminator gives all features the same answer, so they learn nothing from it.",
            f"Try a lighter alignment (--set align.weight={weight / 2:g}), or a lower learning rate.",
        )
    if max(abs(accuracy - 0.5) for accuracy in accuracies) < AT_CHANCE:
        return DiscriminatorState(
            "collapsed",
            "bad",
            late,
            "The discriminator never separated labelled from unlabelled features. Either they were alike from the "
            "beginning (see MMD²), or it has collapsed to one answer and the features learn nothing from it.",
            f"If MMD² is clearly above zero, try {strengthen(recipe)}.",
        )
    return grade_accuracy(late, recipe)


def grade_accuracy(accuracy: float, recipe: Recipe) -> DiscriminatorState:
    """Return the state of a discriminator that has not collapsed."""
    if accuracy > STRONG:
        return DiscriminatorState(
            "too strong",
            "bad",
            accuracy,
            "The discriminator separates labelled from unlabelled features most of the time: the features are not "
            "aligned, and a discriminator that is always right gives them little to learn from.",
            f"Try {weaken(recipe)}.",
        )
    if accuracy > RATHER_STRONG:
        return DiscriminatorState(
            "rather strong",
            "warn",
            accuracy,
            "The discriminator still finds a difference between labelled and unlabelled features.",
            f"If MMD² is not falling, try {weaken(recipe)}, or more updates.",
        )
    if accuracy < WEAK:
        return DiscriminatorState(
            "too weak",
            "warn",
            accuracy,
            "The discriminator is wrong more often than chance: the features move faster than it learns.",
            f"Try {strengthen(recipe)}.",
        )
    return DiscriminatorState(
        "healthy",
        "good",
        accuracy,
        "The discriminator is little better than chance: labelled and unlabelled features are alike, as intended.",
        "Nothing needs to be changed.",
    )


def weaken(recipe: Recipe) -> str:
    """Return settings under which the discriminator has less advantage."""
    weight, rate = read_settings(recipe)
    return (
        f"a heavier alignment (--set align.weight={2 * weight or 1:g}), "
        f"or a slower discriminator (--set align.learning_rate={rate / 4:g})"
    )


def strengthen(recipe: Recipe) -> str:
    """Return settings under which the discriminator has more advantage."""
    weight, rate = read_settings(recipe)
    return (
        f"a lighter alignment (--set align.weight={weight / 2:g}), "
        f"or a faster discriminator (--set align.learning_rate={2 * rate:g})"
    )


def read_settings(recipe: Recipe) -> tuple[float, float]:
    """Return the weight of the alignment and the discriminator's learning rate."""
    assert recipe.align is not None
    rate = getattr(recipe.align, "learning_rate", None) or recipe.optimisation.learning_rate
    return recipe.align.weight, rate
