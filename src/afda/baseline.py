"""The run that every other is held against: the same labels, without the unlabelled images."""

from afda.recipe import Recipe


def without_unlabelled(recipe: Recipe) -> Recipe:
    """The same recipe with the labelled images only."""
    return recipe.with_settings(["method=supervised", 'align="none"', "statistics=labelled"])
