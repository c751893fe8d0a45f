"""The small handwritten digits that come with scikit-learn."""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import torch

from afda.data.images import DataSet, Images, Preparation
from afda.data.source import NamedRecipe, Source
from afda.recipe import Recipe
from afda.recipes import CONSISTENCY, TEACHER, build_recipe, choose_methods, choose_statistics

TEST_SIZE = 500


def demo(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """A small net on the digits, 50 labels by default; settings chosen on validation images."""
    return build_recipe(
        data,
        labels=labels or 50,
        net={"name": "small", "width": 0.5, "momentum": 0.05},
        method=choose_methods(
            method, vat={"radius": 1.5, "xi": 1e-2, "on": "unlabelled"}, pi_model=CONSISTENCY, mean_teacher=TEACHER
        ),
        align=align if align != "adversarial" else {"name": align, "hidden": 256},
        steps=1200,
        labelled_batch=16,
        unlabelled_batch=64,
        statistics=choose_statistics(method, align),
        optimisation={"learning_rate": 4e-3, "tail": 1 / 3},
    )


class Digits(Source):
    """Handwritten digits in grey, 8 by 8 pixels, 1,297 to train on and 500 to test on; nothing to download."""

    recipes = (NamedRecipe(demo),)

    def load(self, folder: Path) -> DataSet:
        held = read_table()
        # Ink goes from 0 to 16.
        x = np.round(held[:, :64].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
        y = held[:, 64].astype(np.int64)
        # RandomState's stream is frozen for good, so the test set is the same with every numpy.
        order = torch.from_numpy(np.random.RandomState(0).permutation(len(x)))
        images = Images(torch.from_numpy(x), torch.from_numpy(y))
        return DataSet(
            name=self.name(),
            classes=tuple("0123456789"),
            train=images[order[TEST_SIZE:]],
            test=images[order[:TEST_SIZE]],
            preparation=Preparation(normalise="centre", shift=1, flip=False),
            balanced=True,
            files={"sklearn.datasets.load_digits": hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()},
        )


def read_table() -> np.ndarray:
    """Return a row per digit: 64 pixels and the label.

    The file is read without scikit-learn, whose import takes longer than the first hundred updates.
    """
    spec = importlib.util.find_spec("sklearn")
    file = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz" if spec and spec.origin else None
    if file is not None and file.exists():
        return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    held = load_digits()
    return np.column_stack([held.data, held.target])
