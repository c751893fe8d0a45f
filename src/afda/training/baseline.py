"""The supervised-only baseline: the same labels, without the unlabelled images."""

from afda.recipe import Recipe


def make_baseline(recipe: Recipe) -> Recipe:
    """Return the same recipe with the labelled images only."""
    return recipe.with_settings(["method=supervised", 'align="none"', "statistics=labelled"])
