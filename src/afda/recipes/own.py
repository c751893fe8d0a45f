"""Recipes for a user's own data."""

import math
from typing import Any

from afda.align import WithDiscriminator
from afda.data.images import DataSet
from afda.data.mirror import is_like_its_mirror_image
from afda.data.source import NamedRecipe
from afda.errors import UserError
from afda.recipe import Recipe
from afda.recipes import CONSISTENCY, STRONG, TEACHER, build_recipe, choose_methods, choose_statistics
from afda.registry import find_plugin

TINY = 16
"""Pixels of the shorter side up to which images are not taken for photos."""
RADIUS_PER_ROOT, SMALLEST_RADIUS = 0.045, 1.5
"""VAT's radius per root of the number of inputs: 2.5 for 32x32 colour images. It is at least what suits the 8x8 digits,
which need four times as much per input, so no single factor fits both."""
RATE = 3e-3
"""The largest learning rate."""


def images(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """Images of any kind on a CPU: a small net up to 16 pixels, one for photos above."""
    if len(data.train.shape) != 3:
        raise UserError(f"{data.name} has vectors, not images; use the recipe own-vectors.")
    if is_tiny(data):
        return tiny_images(data, method, align, labels)
    return build_recipe(
        data,
        labels=labels,
        preparation=prepare_photos(data),
        net={"name": "photo", "momentum": 0.05},
        method=choose_methods(
            method,
            vat={**choose_radius(data), "xi": 1e-2, "on": "unlabelled"},
            entropy={"prior": "uniform"},
            fixmatch=STRONG,
            pi_model=CONSISTENCY,
            mean_teacher=TEACHER,
        ),
        align=choose_alignment(align),
        steps=4000,
        labelled_batch=choose_labelled_batch(data),
        unlabelled_batch=64,
        statistics=choose_statistics(method, align),
        optimisation={"learning_rate": RATE, "tail": 1 / 3},
    )


def images_gpu(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """Images above 16 pixels on a GPU: WRN-28-2 at full width with large batches, which no CPU here could try."""
    if len(data.train.shape) != 3:
        raise UserError(f"{data.name} has vectors, not images; use the recipe own-vectors.")
    return build_recipe(
        data,
        labels=labels,
        preparation=prepare_photos(data),
        net={"name": "wrn-28-2", "momentum": 0.01},
        method=choose_methods(
            method,
            vat={**choose_radius(data), "on": "unlabelled"},
            entropy={"prior": "uniform"},
            fixmatch=STRONG,
            pi_model={**CONSISTENCY, "ramp": 0.1},
            mean_teacher={**CONSISTENCY, "ramp": 0.1},
        ),
        # d is trained by Adam; the learning rate of SGD is not for it.
        align=choose_alignment(align, learning_rate=5e-4),
        steps=20_000,
        labelled_batch=64,
        unlabelled_batch=448 if "fixmatch" in method.split("+") else 128,
        statistics=choose_statistics(method, align),
        optimisation={
            "optimizer": "sgd",
            "learning_rate": 0.03,
            "schedule": "partial-cosine",
            "weight_decay": 5e-4,
            "weight_decay_on": "kernels",
        },
    )


def tiny_images(data: DataSet, method: str, align: str, labels: int | None) -> Recipe:
    """Return the recipe for images of up to 16 pixels, such as the digits."""
    return build_recipe(
        data,
        labels=labels,
        net={"name": "small", "width": 0.5, "momentum": 0.05},
        method=choose_methods(
            method,
            vat={**choose_radius(data), "xi": 1e-2, "on": "unlabelled"},
            entropy={"prior": "uniform"},
            pi_model=CONSISTENCY,
            mean_teacher=TEACHER,
        ),
        align=choose_alignment(align),
        steps=1500,
        labelled_batch=choose_labelled_batch(data),
        unlabelled_batch=64,
        outliers="down-weight",
        statistics=choose_statistics(method, align),
        optimisation={"learning_rate": RATE, "tail": 1 / 3},
    )


def is_tiny(data: DataSet) -> bool:
    """Return whether the images are too small to be photos."""
    return min(data.train.shape[1:]) <= TINY


def prepare_photos(data: DataSet) -> dict[str, Any]:
    """Return the preparation of the data, with flips if images are like their mirror images."""
    flip = data.preparation.flip or is_like_its_mirror_image(data.train.x)
    return {**data.preparation.model_dump(), "flip": flip}


def choose_radius(data: DataSet) -> dict[str, Any]:
    """Return VAT's radius for these images."""
    if RADIUS_PER_ROOT * math.prod(data.train.shape) ** 0.5 < SMALLEST_RADIUS:
        return {"radius": SMALLEST_RADIUS}
    return {"radius": RADIUS_PER_ROOT, "scale": "root"}


def choose_labelled_batch(data: DataSet) -> int:
    """Return the labelled images per update.

    Each class should be seen every few updates; batches that are larger than that hurt when labels are few.
    """
    return min(64, max(16, len(data.classes)))


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
        labelled_batch=choose_labelled_batch(data),
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


RECIPES = (NamedRecipe(images), NamedRecipe(images_gpu), NamedRecipe(vectors), NamedRecipe(linear))
