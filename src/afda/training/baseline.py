"""The supervised-only baseline: the same labels, without the unlabelled images."""

from afda.recipe import Recipe


def make_baseline(recipe: Recipe) -> Recipe:
    """Return the same recipe with the labelled images only, and with what its methods do to these."""
    kept = [method.model_dump() for method in recipe.method if not method.uses_unlabelled] or [{"name": "supervised"}]
    return Recipe.of({**recipe.model_dump(), "method": kept, "align": None, "statistics": "labelled"})
