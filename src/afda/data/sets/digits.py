"""The small handwritten digits that come with scikit-learn."""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import torch

from afda.data.images import DataSet, Images, Preparation, Source

TEST_SIZE = 500


class Digits(Source):
    """Handwritten digits in grey, 8 by 8 pixels, 1,297 to train on and 500 to test on; nothing to download."""

    def load(self, folder: Path) -> DataSet:
        held = table()
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


def table() -> np.ndarray:
    """A row per digit: 64 pixels and the label. Read from scikit-learn's file, for to import it takes longer than to
    train the first hundred steps."""
    spec = importlib.util.find_spec("sklearn")
    file = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz" if spec and spec.origin else None
    if file is not None and file.exists():
        return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    held = load_digits()
    return np.column_stack([held.data, held.target])
