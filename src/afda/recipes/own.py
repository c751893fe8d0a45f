"""Recipes for a user's own data."""

from afda.data.images import DataSet
from afda.data.source import NamedRecipe
from afda.errors import UserError
from afda.recipe import Recipe
from afda.recipes import CONSISTENCY, TEACHER, build_recipe, choose_methods, choose_statistics


def images(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """Images of any kind: a small net up to 16 pixels, an eighth of ConvLarge above."""
    if len(data.train.shape) != 3:
        raise UserError(f"{data.name} has vectors, not images; use the recipe own-vectors.")
    tiny = min(data.train.shape[1:]) <= 16
    radius = 1.5 if tiny else 2.5
    return build_recipe(
        data,
        labels=labels,
        net={"name": "small", "width": 0.5, "momentum": 0.05}
        if tiny
        else {"name": "conv-large", "width": 0.125, "momentum": 0.05},
        method=choose_methods(
            method,
            vat={"radius": radius, "xi": 1e-2, "on": "unlabelled"},
            entropy={"prior": "uniform"},
            pi_model=CONSISTENCY,
            mean_teacher=TEACHER,
        ),
        align=match_shares(align),
        steps=1500 if tiny else 4000,
        # Each class should be seen every few updates; batches that are larger than that hurt when labels are few.
        labelled_batch=min(64, max(16, len(data.classes))),
        unlabelled_batch=64,
        statistics=choose_statistics(method, align),
        optimisation={"learning_rate": 3e-3, "tail": 1 / 3},
    )


def match_shares(align: str, **of_adversarial: int) -> str | dict[str, object]:
    """Return the alignment with labelled images weighted by class, and these fields if it is the adversarial one."""
    if align == "none":
        return align
    return {"name": align, "shares": "matched", **(of_adversarial if align == "adversarial" else {})}


def vectors(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """Vectors such as embeddings: a perceptron, trained in seconds."""
    if len(data.train.shape) != 1:
        raise UserError(f"{data.name} has images, not vectors; use the recipe own-images.")
    (size,) = data.train.shape
    return build_recipe(
        data,
        labels=labels,
        net={"name": "mlp", "momentum": 0.05},
        # Inputs have unit variance, so their norm grows as the root of their number; so does a fair perturbation.
        method=choose_methods(
            method,
            vat={"radius": 0.25 * size**0.5, "xi": 1e-2, "on": "unlabelled"},
            entropy={"prior": "uniform"},
            pi_model=CONSISTENCY,
            mean_teacher=TEACHER,
        ),
        align=match_shares(align, hidden=256),
        steps=500,
        labelled_batch=min(64, max(16, len(data.classes))),
        unlabelled_batch=64,
        statistics=choose_statistics(method, align),
        optimisation={"learning_rate": 3e-3, "tail": 1 / 3},
    )


def linear(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """A linear classifier of the inputs; supervised, it is logistic regression with scikit-learn's penalty."""
    count = labels or max(int((data.train.y >= 0).sum()), 1)
    return build_recipe(
        data,
        preparation={"normalise": "standard", "shift": 0},
        labels=labels,
        net="linear",
        method=choose_methods(method),
        align=align,
        steps=400,
        labelled_batch=64,
        unlabelled_batch=64,
        statistics=choose_statistics(method, align),
        optimisation={
            "learning_rate": 0.03,
            "tail": 0.75,
            "weight_decay": 1 / count,
            "weight_decay_on": "kernels",
        },
    )


RECIPES = (NamedRecipe(images), NamedRecipe(vectors), NamedRecipe(linear))
