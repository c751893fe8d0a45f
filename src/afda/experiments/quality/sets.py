"""The data sets of the quality suite, by name."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np

from afda.data import load
from afda.data.download import find_data_folder
from afda.errors import UserError, unknown
from afda.experiments.quality import generated
from afda.experiments.quality.problem import Problem, choose_labels, make_problem, split_off

TUNING_SEED = 100
"""The first seed for choosing settings. Smaller ones are for reporting."""
SUBSET = 2000
"""Training images, and test images, of a subset of a published set."""
PHOTO_FILES = {
    "svhn": ("svhn/train_32x32.mat", "train_32x32.mat"),
    "cifar10": (
        *("cifar10/cifar-10-batches-bin/test_batch.bin", "cifar-10-batches-bin/test_batch.bin"),
        *("cifar10/test_batch.bin", "cifar10/cifar-10-binary.tar.gz", "cifar-10-binary.tar.gz"),
    ),
}
"""Files below the data folder by one of which a set is known to be present: the suite downloads nothing."""


@dataclass(frozen=True)
class QualitySet:
    """A data set of the suite: a function of the number of labels per class and of the seed."""

    name: str
    role: Literal["tuning", "reporting"]
    """Settings may be chosen on tuning sets, with seeds from 100. On reporting sets they never are."""
    build: Callable[[int, np.random.Generator, bool], Problem]
    summary: str
    find_absence: Callable[[], str] = lambda: ""
    """Return what to do if its files are missing."""

    def make(self, labels: int, seed: int) -> Problem:
        """Return the problem with this many labels per class; it is a function of the two arguments alone."""
        rng = np.random.default_rng((zlib.crc32(self.name.encode()), seed))
        return self.build(labels, rng, seed >= TUNING_SEED)


def build_from_sklearn(name: str, shape: tuple[int, ...], labels: int, rng: np.random.Generator, _: bool) -> Problem:
    """Return a problem of one of scikit-learn's sets, a third of it (of the digits 28 %) to test on.

    Of equal samples only the first is kept: iris has two, and one of them could be tested on.
    """
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    kept = np.sort(np.unique(x, axis=0, return_index=True)[1])
    x, y = x[kept], y[kept]
    train, test = split_off(y, generated.TEST_SHARE if name == "digits" else 1 / 3, rng)
    x = x.reshape(-1, *shape) / 16 if shape else x  # images are floats from 0 to 1
    given = choose_labels(y[train], dict.fromkeys(map(int, np.unique(y)), labels), rng)
    return make_problem(x[train], y[train], given, x[test], y[test], rng)


@lru_cache(maxsize=1)
def load_images(name: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return images (n, h, w[, 3]) and classes of a published set's training part, and of its test part."""
    data = load(name)
    assert data.test is not None
    parts = [(part.x.numpy().transpose(0, 2, 3, 1), part.y.numpy()) for part in (data.train, data.test)]
    train, test = ((x.squeeze(axis=3) if x.shape[3] == 1 else x, y) for x, y in parts)
    return train, test


def build_subset(name: str, labels: int, rng: np.random.Generator, tuning: bool) -> Problem:
    """Return a problem of 2,000 training and 2,000 test images; for tuning, the latter are training images too."""
    (x, y), test = load_images(name)
    rows = rng.permutation(len(x))
    pool, others = rows[:SUBSET], rows[SUBSET : 2 * SUBSET]
    x_test, y_test = (x[others], y[others]) if tuning else draw(*test, rng)
    given = choose_labels(y[pool], dict.fromkeys(map(int, np.unique(y)), labels), rng)
    return make_problem(x[pool], y[pool], given, x_test, y_test, rng)


def draw(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return 2,000 images and their classes."""
    rows = rng.permutation(len(x))[:SUBSET]
    return x[rows], y[rows]


def find_missing_photos(name: str) -> str:
    """Return what to do if a published set is not in the data folder."""
    folder = find_data_folder()
    if any((folder / file).is_file() for file in PHOTO_FILES[name]):
        return ""
    return f"set AFDA_DATA to a folder with {Path(PHOTO_FILES[name][0]).parent}, or run afda check {name} once"


def find_missing_clothes() -> str:
    """Return what to do if the files of Fashion-MNIST are missing."""
    try:
        load_images("fashion-mnist")
    except UserError as error:
        text = str(error).rstrip(".")
        return text[0].lower() + text[1:]
    return ""


def list_real() -> list[QualitySet]:
    """Return the sets with real data."""
    fashion = partial(build_subset, "fashion-mnist")
    return [
        QualitySet("digits", "tuning", partial(build_from_sklearn, "digits", ()), "Digits as vectors of 64 pixels."),
        QualitySet(
            "digits-images", "tuning", partial(build_from_sklearn, "digits", (8, 8)), "Digits as images of 8 by 8."
        ),
        QualitySet("iris", "tuning", partial(build_from_sklearn, "iris", ()), "Three kinds of flowers, 4 features."),
        QualitySet("wine", "reporting", partial(build_from_sklearn, "wine", ()), "Three kinds of wine, 13 features."),
        QualitySet(
            *("breast-cancer", "tuning", partial(build_from_sklearn, "breast_cancer", ())),
            summary="Benign and malignant cell nuclei, 30 features.",
        ),
        QualitySet(
            *("fashion-mnist", "reporting", fashion, "Clothes, grey images of 28 by 28, a subset."),
            find_absence=find_missing_clothes,
        ),
        QualitySet(
            *("svhn", "tuning", partial(build_subset, "svhn"), "House numbers, colour images of 32 by 32, a subset."),
            find_absence=partial(find_missing_photos, "svhn"),
        ),
        QualitySet(
            *("cifar10", "tuning", partial(build_subset, "cifar10"), "Photos of 32 by 32 pixels, a subset."),
            find_absence=partial(find_missing_photos, "cifar10"),
        ),
    ]


def list_generated() -> list[QualitySet]:
    """Return the generated sets."""
    made: dict[str, tuple[Literal["tuning", "reporting"], Callable[[int, np.random.Generator], Problem]]] = {
        "many-classes": ("tuning", generated.make_many_classes),
        "uneven-labels": ("tuning", generated.make_uneven_labels),
        "skewed-pool": ("tuning", generated.make_skewed_pool),
        "out-of-class": ("tuning", generated.make_out_of_class),
        "imbalance": ("tuning", generated.make_imbalance),
        "overlapping": ("tuning", generated.make_overlapping),
        "useless-features": ("reporting", generated.make_useless_features),
        "noisy-labels": ("reporting", generated.make_noisy_labels),
    }

    def ignore_role(make: Callable[[int, np.random.Generator], Problem]) -> Callable[..., Problem]:
        return lambda labels, rng, _: make(labels, rng)

    return [
        QualitySet(name, role, ignore_role(make), (make.__doc__ or "").strip()) for name, (role, make) in made.items()
    ]


SETS = {one.name: one for one in (*list_real(), *list_generated())}


def select_sets(names: str, tuning: bool) -> list[QualitySet]:
    """Return the sets of a list with commas, or all that the role allows; raise a UserError for any other name."""
    if not names:
        return [one for one in SETS.values() if not tuning or one.role == "tuning"]
    chosen = []
    for name in dict.fromkeys(name.strip() for name in names.split(",")):
        if name not in SETS:
            raise unknown("set of the quality suite", name, SETS)
        if tuning and SETS[name].role == "reporting":
            raise UserError(f"{name} is a set for reporting only; leave it out of --sets, or leave out --tuning.")
        chosen.append(SETS[name])
    return chosen
