"""Alarms: what goes wrong in a training without stopping it, seen in the lines of its log."""

from afda.recipe import Recipe
from afda.runs.log import LogLine

PATIENCE = 20
"""Lines in a row that must agree: a fifth of a training of a hundred updates or more."""
ALWAYS_RIGHT = 0.99
"""A discriminator's accuracy from which on the features have nothing to learn from it."""
ONE_ANSWER = 1e-4
"""How near to 0.5 the balanced accuracy stays if the discriminator gives all images the same answer. One that is merely
at chance is right a little more or less often, line by line."""

SKEWED = 0.6
"""The skew from which on the predictions have hardly anything to do with the labelled shares. Balanced labels of ten
classes have a skew of 0.15 to the shares of SVHN, and of 0.49 to an unlabelled set whose classes fall to 1 : 100."""
MANY_OUTLIERS = 1 / 3
"""The share of outliers among the unlabelled images from which on there are too many of them."""
LEARNT = 50.0
"""The labelled error in percent under which predictions are worth comparing: an untrained net's are always skewed."""


def find_alarm(log: list[LogLine], recipe: Recipe, outlier_share: float | None = None) -> str | None:
    """Return what the share of outliers and the last lines of a log say is wrong, if no earlier line has said so."""
    earlier = {line.warning for line in log}
    words = list_alarms(log[-PATIENCE:], recipe)
    if outlier_share is not None and outlier_share > MANY_OUTLIERS:
        words.append(
            f"About {100 * outlier_share:.0f} % of the unlabelled images are unlike the labelled ones; they are drawn "
            "less often, but remove those of other kinds (unlike.csv lists them at the end), and label some of those "
            "that belong to the classes."
        )
    return next((one for one in words if one not in earlier), None)


def list_alarms(lines: list[LogLine], recipe: Recipe) -> list[str]:
    """Return all that these lines say is wrong."""
    if len(lines) < PATIENCE:
        return []
    words = []
    accuracies = [value for line in lines if (value := line.values.get("discriminator_accuracy")) is not None]
    if recipe.align is not None and len(accuracies) == PATIENCE:
        weight = recipe.align.weight
        if min(accuracies) >= ALWAYS_RIGHT:
            words.append(
                "The discriminator has collapsed: it tells labelled from unlabelled features without fail, so the "
                f"features learn little from it; try a heavier alignment (--set align.weight={2 * weight or 1:g})."
            )
        if max(abs(accuracy - 0.5) for accuracy in accuracies) <= ONE_ANSWER:
            words.append(
                "The discriminator has collapsed: it gives all features the same answer, so they learn nothing from "
                f"it; try a lighter alignment (--set align.weight={weight / 2:g}) or a lower learning rate."
            )
    commonest = [value for line in lines if (value := line.values.get("commonest")) is not None]
    if commonest and min(commonest) == 1:
        words.append(
            "The predictions are constant: all images are assigned to the same class; try a lower learning rate, "
            "--method supervised --align none to see whether the labels can be learnt, or more labels."
        )
    elif recipe.uses_unlabelled and are_skewed(lines):
        words.append(
            "The predictions are skewed: the unlabelled images are assigned to a few classes, in shares far from those "
            f"of the labels. If that cannot be right, {suggest_lighter(recipe)}, and compare with --method supervised "
            "--align none."
        )
    return words


def are_skewed(lines: list[LogLine]) -> bool:
    """Return whether the predictions were skewed in all lines that say so, and the labels are learnt by now."""
    skews = [value for line in lines if (value := line.values.get("skew")) is not None]
    errors = [value for line in lines if (value := line.values.get("labelled_error")) is not None]
    return bool(skews and errors) and min(skews) >= SKEWED and max(errors) <= LEARNT


def suggest_lighter(recipe: Recipe) -> str:
    """Return the advice to halve the weights of what can pull predictions towards a few classes."""
    weights = {f"method.{method.name()}.weight": getattr(method, "weight", None) for method in recipe.method}
    weights["align.weight"] = recipe.align.weight if recipe.align is not None else None
    settings = [f"--set {path}={weight / 2:g}" for path, weight in weights.items() if weight]
    return f"try smaller weights ({' '.join(settings)})" if settings else "try another --method"
