"""Street View House Numbers, the cropped digits, with the recipes of Tables 1, 3, 4, 5 and 7 of the paper."""

from pathlib import Path

import numpy as np
import torch

from afda.data.download import Remote, fetch
from afda.data.images import DataSet, Images, Preparation
from afda.data.matlab import read_matlab
from afda.data.source import NamedRecipe, Source
from afda.errors import UserError
from afda.recipe import Recipe
from afda.recipes import SHORT, build_recipe, choose_methods

URL = "http://ufldl.stanford.edu/housenumbers/"
TRAIN = Remote("train_32x32.mat", URL + "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373")
TEST = Remote("test_32x32.mat", URL + "test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3")


def ablation(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The ablation on SVHN: ConvLarge, batches of 100, Adam, 60,000 updates (Tables 3 and 5)."""
    # Without alignment the paper trains the Pi-model and Mean Teacher as their authors did; with it, everything alike.
    authors_way = align == "none" and method in ("pi-model", "mean-teacher")
    steps = 150_000 if authors_way else 60_000
    ramp = {"ramp": 40_000 / steps}
    return build_recipe(
        data,
        labels=labels,
        net="conv-large",
        method=choose_methods(method, vat={"radius": 3.5}, pi_model=ramp, mean_teacher=ramp),
        align=align,
        steps=steps,
        labelled_batch=16,
        unlabelled_batch=84,
        optimisation={"learning_rate": 3e-3, "schedule": "ramps"} if authors_way else {"tail": 20_000 / steps},
    )


def headline(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The headline run on SVHN: ConvLarge, 32 + 128 images, 150,000 updates, VAT with entropy (Table 1)."""
    return build_recipe(
        data,
        labels=labels,
        net="conv-large",
        method=choose_methods(method, vat={"radius": 3.5}),
        align=align,
        steps=150_000,
        labelled_batch=32,
        unlabelled_batch=128,
        optimisation={"tail": 20_000 / 150_000},
    )


def wide_resnet(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The ablation on SVHN with WRN-28-2 (Table 7)."""
    return ablation(data, method, align, labels).with_settings(["net=wrn-28-2"])


class SVHN(Source):
    """House-number digits in colour, 32 by 32 pixels: 73,257 to train on and 26,032 to test on."""

    recipes = (
        NamedRecipe(ablation, cpu=("net.width=0.125", *SHORT, "method.vat.radius=2.0")),
        NamedRecipe(headline, cpu=("net.width=0.125", *SHORT, "method.vat.radius=2.0")),
        NamedRecipe(wide_resnet, cpu=("net.width=0.25", *SHORT, "method.vat.radius=2.0")),
    )

    def load(self, folder: Path) -> DataSet:
        found = fetch((TRAIN, TEST), folder / "svhn", folder)
        return DataSet(
            name=self.name(),
            classes=tuple("0123456789"),
            train=_read(found.paths[TRAIN.name]),
            test=_read(found.paths[TEST.name]),
            preparation=Preparation(normalise="centre", shift=2, flip=False),
            balanced=False,
            files=found.files,
            notes=found.notes,
        )


def _read(path: Path) -> Images:
    unreadable = UserError(f"{path} is not a readable SVHN file: delete it to download it again.")
    try:
        held = read_matlab(path, ("X", "y"))
    except (OSError, ValueError) as error:
        raise unreadable from error
    x, y = held.get("X"), held.get("y")
    if (
        x is None
        or y is None
        or x.dtype != np.uint8
        or x.shape != (32, 32, 3, y.size)
        or not y.size
        or not np.isin(y, np.arange(1, 11)).all()
    ):
        raise unreadable
    # The file is (h, w, c, n) and writes the digit 0 as 10.
    digits = y.flatten().astype(np.int64) % 10
    return Images(torch.from_numpy(x.transpose(3, 2, 0, 1).copy()), torch.from_numpy(digits))
