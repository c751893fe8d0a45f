"""What goes wrong in a training without stopping it, told from the lines of its log."""

from typing import Any

from afda.recipe import Recipe

PATIENCE = 20
"""Lines in a row that must agree: a fifth of a training of a hundred updates or more."""
ALWAYS_RIGHT = 0.99
"""A discriminator's accuracy from which on it leaves the features nothing to learn."""
ONE_ANSWER = 1e-4
"""How near to 0.5 the balanced accuracy of a discriminator stays that gives all images the same answer. One that is
merely at chance is right a little more or less often, line by line."""


def alarm(log: list[dict[str, Any]], recipe: Recipe) -> str | None:
    """What the last lines of a log say is wrong, if no earlier line has said so."""
    told = {line.get("warning") for line in log}
    return next((words for words in found(log[-PATIENCE:], recipe) if words not in told), None)


def found(lines: list[dict[str, Any]], recipe: Recipe) -> list[str]:
    """All that these lines say is wrong."""
    if len(lines) < PATIENCE:
        return []
    words = []
    right = [line["discriminator_accuracy"] for line in lines if "discriminator_accuracy" in line]
    if recipe.align is not None and len(right) == PATIENCE:
        weight = recipe.align.weight
        if min(right) >= ALWAYS_RIGHT:
            words.append(
                "The discriminator has collapsed: it tells labelled from unlabelled features without fail, so they "
                f"learn little from it; try a heavier alignment (--set align.weight={2 * weight or 1:g})."
            )
        if max(abs(accuracy - 0.5) for accuracy in right) <= ONE_ANSWER:
            words.append(
                "The discriminator has collapsed: it gives all features the same answer, so they learn nothing from "
                f"it; try a lighter alignment (--set align.weight={weight / 2:g}) or a lower learning rate."
            )
    commonest = [line["commonest"] for line in lines if "commonest" in line]
    if commonest and min(commonest) == 1:
        words.append(
            "The predictions are constant: all images are taken for the same class; try a lower learning rate, "
            "--method supervised --align none to see whether the labels can be learnt, or more labels."
        )
    return words
