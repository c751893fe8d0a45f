"""The run that every other is held against: the same labels, without the unlabelled images."""

import os.path

from afda.data.images import DataSet
from afda.recipe import Recipe


def without_unlabelled(recipe: Recipe) -> Recipe:
    """The same recipe with the labelled images only."""
    return recipe.with_settings(["method=supervised", 'align="none"', "statistics=labelled"])


def follows(recipe: Recipe, data: DataSet) -> bool:
    """Whether that run follows unless asked otherwise: on a person's own data, if some are held out to compare on."""
    held_out = recipe.validation or data.val is not None or data.test is not None
    return recipe.uses_unlabelled and os.path.isabs(data.source) and held_out
