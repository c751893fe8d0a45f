"""The run that every other is held against: the same labels, without the unlabelled images."""

from math import sqrt
from typing import Any

from afda.recipe import Recipe

FOLDER = "supervised-only"
"""Where it lies, in the directory of the run that it accompanies."""


def without_unlabelled(recipe: Recipe) -> Recipe:
    """The same recipe with the labelled images only."""
    return recipe.with_settings(["method=supervised", 'align="none"', "statistics=labelled"])


def verdict(result: dict[str, Any], baseline: dict[str, Any]) -> str:
    """Whether the unlabelled images helped, in words, from the two results."""
    which = "test" if result["test"] and baseline["test"] else "validation"
    ours, theirs = result[which], baseline[which]
    if not ours or not theirs:
        return "Whether the unlabelled images helped cannot be said: there are no test or validation images."
    a, b = ours["error"], theirs["error"]
    count = sum(map(sum, ours["confusion"]))
    figures = f"{a:.1f} % error with them, {b:.1f} % from the labels alone, on {count} {which} images"
    spread = sqrt((a * (100 - a) + b * (100 - b)) / count)
    if abs(a - b) <= 2 * spread:
        better = "fewer" if a < b else "more" if a > b else "as many"
        return f"No clear difference from the unlabelled images ({better} mistakes, within chance): {figures}."
    return f"The unlabelled images {'helped' if a < b else 'made it worse'}: {figures}."
