"""Recipes for a user's own data."""

import math
from typing import Any

from afda.align import WithDiscriminator
from afda.data.images import DataSet
from afda.data.source import NamedRecipe
from afda.errors import UserError
from afda.recipe import Recipe
from afda.recipes import CONSISTENCY, TEACHER, build_recipe, choose_methods, choose_statistics
from afda.registry import find_plugin

PER_ROOT = 0.045
"""VAT's radius for images per root of the number of inputs."""
SMALLEST_RADIUS = 1.5
RATE = 3e-3
"""The largest learning rate."""


def images(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """Images of any kind: a small net up to 16 pixels, an eighth of ConvLarge above.

    VAT's radius is 0.045 times the root of the number of inputs, 2.5 for 32x32 colour images, but at least 1.5, which
    suits the 8x8 digits: per input they need four times as much, so no single factor fits both.
    """
    if len(data.train.shape) != 3:
        raise UserError(f"{data.name} has vectors, not images; use the recipe own-vectors.")
    tiny = min(data.train.shape[1:]) <= 16
    large = PER_ROOT * math.prod(data.train.shape) ** 0.5 >= SMALLEST_RADIUS
    return build_recipe(
        data,
        labels=labels,
        net={"name": "small", "width": 0.5, "momentum": 0.05}
        if tiny
        else {"name": "conv-large", "width": 0.125, "momentum": 0.05},
        method=choose_methods(
            method,
            vat={
                **({"radius": PER_ROOT, "scale": "root"} if large else {"radius": SMALLEST_RADIUS}),
                "xi": 1e-2,
                "on": "unlabelled",
            },
            entropy={"prior": "uniform"},
            pi_model=CONSISTENCY,
            mean_teacher=TEACHER,
        ),
        align=choose_alignment(align),
        steps=1500 if tiny else 4000,
        # Each class should be seen every few updates; batches that are larger than that hurt when labels are few.
        labelled_batch=min(64, max(16, len(data.classes))),
        unlabelled_batch=64,
        outliers="down-weight",
        statistics=choose_statistics(method, align),
        optimisation={"learning_rate": RATE, "tail": 1 / 3},
    )


def vectors(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """Vectors such as embeddings: a perceptron, trained in seconds.

    Inputs are clipped to ten standard deviations, in training and prediction. The discriminator learns as fast as the
    net: at a third of its rate, as for images, four of four trainings on the digits were worse.
    """
    if len(data.train.shape) != 1:
        raise UserError(f"{data.name} has images, not vectors; use the recipe own-images.")
    return build_recipe(
        data,
        labels=labels,
        preparation={**data.preparation.model_dump(), "clip": 10.0},
        net={"name": "mlp", "momentum": 0.05},
        # Inputs have unit variance, so their norm grows as the root of their number; so does a fair perturbation.
        method=choose_methods(
            method,
            vat={"radius": 0.25, "scale": "root", "xi": 1e-2, "on": "unlabelled"},
            entropy={"prior": "uniform"},
            pi_model=CONSISTENCY,
            mean_teacher=TEACHER,
        ),
        align=choose_alignment(align, learning_rate=RATE),
        steps=500,
        labelled_batch=min(64, max(16, len(data.classes))),
        unlabelled_batch=64,
        outliers="down-weight",
        statistics=choose_statistics(method, align),
        optimisation={"learning_rate": RATE, "tail": 1 / 3},
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


def choose_alignment(name: str, **fields: float) -> str | dict[str, Any]:
    """Return the alignment with labelled images weighted by class; a discriminator follows the number of features.

    `fields` are those of a discriminator.
    """
    if name == "none":
        return name
    if not issubclass(find_plugin("align", name), WithDiscriminator):
        return {"name": name, "shares": "matched"}
    return {"name": name, "shares": "matched", "hidden": "auto", **fields}


RECIPES = (NamedRecipe(images), NamedRecipe(vectors), NamedRecipe(linear))
