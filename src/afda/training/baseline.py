"""The supervised-only baseline: the same labels, without the unlabelled images."""

import os.path

from afda.data.images import DataSet
from afda.recipe import Recipe


def make_baseline(recipe: Recipe) -> Recipe:
    """Return the same recipe with the labelled images only, and with what its methods do to these."""
    kept = [method.model_dump() for method in recipe.method if not method.uses_unlabelled] or [{"name": "supervised"}]
    return Recipe.of({**recipe.model_dump(), "method": kept, "align": None, "statistics": "labelled"})


def is_baseline_useful(recipe: Recipe, data: DataSet) -> bool:
    """Return True if the effect of the unlabelled images is unknown: with a user's own data."""
    return recipe.uses_unlabelled and os.path.isabs(data.source)


def should_train_baseline(recipe: Recipe, data: DataSet) -> bool:
    """Return True if a supervised-only baseline should be trained as well, unless the user decides otherwise.

    It is trained where it is useful and images are held out to compare on.
    """
    held_out = recipe.validation or data.val is not None or data.test is not None
    return is_baseline_useful(recipe, data) and held_out
