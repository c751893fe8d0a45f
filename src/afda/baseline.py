"""The run that every other is held against: the same labels, without the unlabelled images."""

import os.path

from afda.data.images import DataSet
from afda.recipe import Recipe


def without_unlabelled(recipe: Recipe) -> Recipe:
    """The same recipe with the labelled images only."""
    return recipe.with_settings(["method=supervised", 'align="none"', "statistics=labelled"])


def wanted(recipe: Recipe, data: DataSet) -> bool:
    """Whether one would like to know what the unlabelled images are good for: those of a person's own data."""
    return recipe.uses_unlabelled and os.path.isabs(data.source)


def follows(recipe: Recipe, data: DataSet) -> bool:
    """Whether that run follows unless asked otherwise: where it is wanted, if images are held out to compare on."""
    return wanted(recipe, data) and (recipe.validation or data.val is not None or data.test is not None)
