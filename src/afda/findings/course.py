"""How a run came about: its curves, and whether the discriminator and the features were in balance."""

from statistics import mean
from typing import Any

from afda.alarms import ONE_ANSWER, PATIENCE
from afda.findings.finished import Finished

NOT_TERMS = {"learning_rate", "mu", "discriminator_accuracy", "labelled_error", "mmd2", "val_error", "commonest"}
"""Numbers in a line of the log that are not terms of the loss."""


def curves(log: list[dict[str, Any]]) -> dict[str, Any]:
    """The log as pairs of update and value: terms of the loss, rates, measures, and the terms of the bound."""
    found: dict[str, Any] = {"terms": {}, "bound": {}}
    for line in log:
        for key, value in line.items():
            if isinstance(value, dict) and key == "bound":
                for term, size in value.items():
                    found["bound"].setdefault(term, []).append([line["step"], size])
            elif isinstance(value, int | float) and key not in ("step", "seconds"):
                place = found if key in NOT_TERMS else found["terms"]
                place.setdefault(key, []).append([line["step"], value])
    return found


def warnings(log: list[dict[str, Any]]) -> list[str]:
    """What the run warned of while it trained, and when."""
    return [f"After {line['step']} updates: {line['warning']}" for line in log if "warning" in line]


def discriminator(one: Finished) -> dict[str, Any] | None:
    """Whether d and f are in balance, from d's accuracy: a light, what it means and what to try.

    The accuracy is the mean of those on labelled and on unlabelled images, so that 50 % is chance however few of the
    batch are labelled. It is taken before d's update, and averaged over the last fifth of the training.
    """
    line = [value for log in one.run.log() if (value := log.get("discriminator_accuracy")) is not None]
    if not line or one.recipe.align is None:
        return None
    late = mean(line[-max(1, len(line) // 5) :])
    weight = one.recipe.align.weight
    rate = getattr(one.recipe.align, "learning_rate", None) or one.recipe.optimisation.learning_rate
    weaker = (
        f"a heavier alignment (--set align.weight={2 * weight or 1:g}), "
        f"or a slower discriminator (--set align.learning_rate={rate / 4:g})"
    )
    stronger = (
        f"a lighter alignment (--set align.weight={weight / 2:g}), "
        f"or a faster discriminator (--set align.learning_rate={2 * rate:g})"
    )
    last = line[-PATIENCE:]
    if len(last) == PATIENCE and max(abs(v - 0.5) for v in last) <= ONE_ANSWER:
        state, light = "collapsed", "bad"
        words = "In the end the discriminator gave all features the same answer, so they learnt nothing from it."
        advice = f"Try a lighter alignment (--set align.weight={weight / 2:g}), or a lower learning rate."
    elif max(abs(v - 0.5) for v in line) < 0.02:
        state, light = "collapsed", "bad"
        words = (
            "The discriminator never told labelled from unlabelled features: either they were alike from the beginning "
            "(see MMD²), or it has collapsed to one answer and teaches the features nothing."
        )
        advice = f"If MMD² is clearly above zero, try {stronger}."
    elif late > 0.8:
        state, light = "too strong", "bad"
        words = (
            "The discriminator tells labelled from unlabelled features most of the time: the features are not "
            "aligned, and a discriminator that is always right gives them little to learn from."
        )
        advice = f"Try {weaker}."
    elif late > 0.68:
        state, light = "rather strong", "warn"
        words = "The discriminator still finds a difference between labelled and unlabelled features."
        advice = f"If MMD² is not falling, try {weaker}, or more updates."
    elif late < 0.42:
        state, light = "too weak", "warn"
        words = (
            "The discriminator is wrong more often than chance: the features move faster than it learns, so the two "
            "chase each other."
        )
        advice = f"Try {stronger}."
    else:
        state, light = "healthy", "good"
        words = (
            "The discriminator is little better than chance: labelled and unlabelled features are alike, as intended."
        )
        advice = "Nothing needs to be changed."
    return {"state": state, "light": light, "accuracy": late, "words": words, "advice": advice}
