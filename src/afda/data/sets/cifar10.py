"""CIFAR-10, in its publisher's binary format."""

from pathlib import Path

import numpy as np
import torch

from afda.data.download import Remote, checksums, fetch, unpack
from afda.data.images import DataSet, Images, Preparation, Source
from afda.errors import UserError

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


class CIFAR10(Source):
    """Ten kinds of animals and vehicles in colour, 32 by 32 pixels: 50,000 to train on and 10,000 to test on."""

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
            files={name: checksums(home / name).sha256 for name in (*TRAIN, TEST)},
            notes=notes,
        )


def _find(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The folder with all six files, unpacked there first if need be, and what to know about them."""
    own = folder / "cifar10"
    places = (own / UNPACKED, folder / UNPACKED, own)
    home = next((place for place in places if all((place / name).is_file() for name in (*TRAIN, TEST))), None)
    if home and not any((place / ARCHIVE.name).is_file() for place in (own, folder)):
        # The publisher gives the archive's checksum only, not those of the files in it.
        return home, (
            "The checksums of the CIFAR-10 .bin files are recorded, but were not verified against the publisher's.",
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
