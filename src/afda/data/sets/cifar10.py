"""CIFAR-10, in its publisher's binary format, with the recipes of Tables 2, 3, 4 and 6 of the paper."""

from pathlib import Path

import numpy as np
import torch

from afda.data.download import Remote, compute_checksums, fetch, unpack
from afda.data.images import DataSet, Images, Preparation
from afda.data.source import NamedRecipe, Source
from afda.errors import UserError
from afda.recipe import Recipe
from afda.recipes import SHORT, build_recipe, choose_methods, choose_statistics

ARCHIVE = Remote(
    "cifar-10-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
)
UNPACKED = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = "test_batch.bin"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ROWS = 10_000
"""Images per file, each one byte for the label and then the red, green and blue planes."""
ROW = 1 + 3 * 32 * 32


def ablation(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The ablation on CIFAR-10: ConvLarge, ZCA, batches of 100, Adam, 150,000 updates (Tables 3 and 6)."""
    authors_way = align == "none" and method in ("pi-model", "mean-teacher")
    return build_recipe(
        data,
        labels=labels,
        net="conv-large",
        method=choose_methods(method, vat={"radius": 8.0}),
        align=align,
        steps=150_000,
        labelled_batch=32,
        unlabelled_batch=68,
        optimisation={"learning_rate": 3e-3, "schedule": "ramps"} if authors_way else {"tail": 20 / 150},
    )


def headline(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The headline run on CIFAR-10: Shake-Shake trained as Mean Teacher's authors did (Table 2).

    One process stands for their four GPUs: batch 512, learning rate 0.2. With up to 1,000 labels they train for 180
    epochs, with more for 300.
    """
    few = labels is not None and labels <= 1000
    epochs, cosine_epochs, decay = (180, 210, 0.97) if few else (300, 350, 0.99)
    updates_per_epoch = (50_000 - (labels or 4000)) // (512 - 124)
    return build_recipe(
        data,
        labels=labels,
        preparation={"normalise": "standard", "shift": 4, "padding": "reflect", "flip": True},
        net={"name": "shake-shake", "heads": 2},
        method=choose_methods(method, mean_teacher={"weight": 100.0, "ramp": 5 / epochs, "decay": decay, "on": "all"}),
        # d is trained by Adam as elsewhere in the paper; the learning rate of SGD is not for it.
        align={"name": align, "learning_rate": 5e-4} if align == "adversarial" else align,
        steps=epochs * updates_per_epoch,
        labelled_batch=124,
        unlabelled_batch=512 - 124,
        optimisation={
            "optimizer": "sgd",
            "learning_rate": 0.2,
            "schedule": "cosine",
            "cosine_end": cosine_epochs / epochs,
            "weight_decay": 2e-4,
        },
        batchnorm="together",
        statistics=choose_statistics(method, align),
        supervised_mean="batch",
        progress_every=updates_per_epoch,
    )


def wide_resnet(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The ablation on CIFAR-10 with WRN-28-2, which the paper does on SVHN only."""
    return ablation(data, method, align, labels).with_settings(["net=wrn-28-2"])


class CIFAR10(Source):
    """Ten kinds of animals and vehicles in colour, 32 by 32 pixels: 50,000 to train on and 10,000 to test on."""

    recipes = (
        # Chosen on validation images (docs/experiments.md).
        NamedRecipe(ablation, cpu=("net.width=0.125", *SHORT, "net.dropout=0.25", "optimisation.learning_rate=0.003")),
        NamedRecipe(
            headline,
            cpu=(
                "net.width=0.125",
                "steps=3000",
                "labelled_batch=16",
                "unlabelled_batch=48",
                "optimisation.learning_rate=0.05",
                "progress_every=10",
            ),
            method="mean-teacher",
        ),
        NamedRecipe(wide_resnet, cpu=("net.width=0.25", *SHORT)),
    )

    def load(self, folder: Path) -> DataSet:
        home, notes = _find(folder)
        train = [_read(home / name) for name in TRAIN]
        return DataSet(
            name=self.name(),
            classes=CLASSES,
            train=Images(torch.cat([part.x for part in train]), torch.cat([part.y for part in train])),
            test=_read(home / TEST),
            preparation=Preparation(normalise="zca", shift=2, flip=True),
            balanced=True,
            files={name: compute_checksums(home / name).sha256 for name in (*TRAIN, TEST)},
            notes=notes,
        )


def _find(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the folder with all six files, unpacked there first if necessary, and notes for the user."""
    own = folder / "cifar10"
    places = (own / UNPACKED, folder / UNPACKED, own)
    home = next((place for place in places if all((place / name).is_file() for name in (*TRAIN, TEST))), None)
    if home and not any((place / ARCHIVE.name).is_file() for place in (own, folder)):
        # The publisher gives the archive's checksum only, not those of the files in it.
        return home, (
            "the checksums of the CIFAR-10 .bin files are recorded, but could not be compared with the publisher's.",
        )
    archive = fetch((ARCHIVE,), own, folder)
    if home is None:
        home = places[0]
        unpack(archive.paths[ARCHIVE.name], home, (*TRAIN, TEST), limit=ROWS * ROW)
    return home, archive.notes


def _read(path: Path) -> Images:
    unreadable = UserError(f"{path} is not a readable CIFAR-10 file: delete it to fetch it again.")
    try:
        rows = np.fromfile(path, np.uint8) if path.stat().st_size == ROWS * ROW else None
    except OSError as error:
        raise unreadable from error
    if rows is None:
        raise unreadable
    rows = rows.reshape(ROWS, ROW)
    labels = rows[:, 0].astype(np.int64)
    if labels.max() >= len(CLASSES):
        raise unreadable
    return Images(torch.from_numpy(rows[:, 1:].reshape(ROWS, 3, 32, 32)), torch.from_numpy(labels))
