"""Fashion-MNIST (Xiao et al., 2017), in the IDX files of its publisher."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch

from afda.data.download import compute_checksums
from afda.data.images import DataSet, Images, Preparation
from afda.data.source import NamedRecipe, Source
from afda.errors import UserError
from afda.recipe import Recipe
from afda.recipes import SHORT, build_recipe, choose_methods

FILES = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Where the Debian package dataset-fashion-mnist puts them."""
CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
LARGEST = 60_000 * 28 * 28 + 16


def ablation(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The ablation of SVHN on Fashion-MNIST: ConvLarge, batches of 100, Adam, 60,000 updates; 500 labels by default."""
    method_fields = choose_methods(method, vat={"radius": 1.75})  # half of SVHN's, for a quarter of its numbers
    return build_recipe(data, labels=labels or 500, net="conv-large", method=method_fields, align=align, steps=60_000)


class FashionMNIST(Source):
    """Ten kinds of clothes in grey, 28 by 28 pixels: 60,000 to train on and 10,000 to test on."""

    recipes = (NamedRecipe(ablation, cpu=("net.width=0.125", *SHORT, "method.vat.radius=1.0")),)

    def load(self, folder: Path) -> DataSet:
        places = (folder / self.name(), DEBIAN)
        home = next((place for place in places if all((place / name).is_file() for name in FILES)), None)
        if home is None:
            raise UserError(f"Put {', '.join(FILES)} into {places[0]}, or install Debian's dataset-fashion-mnist.")
        files = {name: compute_checksums(home / name).sha256 for name in FILES}
        x, y, x_test, y_test = (_read(home / name, (28, 28) if "images" in name else ()) for name in FILES)
        if len(x) != len(y) or len(x_test) != len(y_test) or max(y.max(), y_test.max()) >= len(CLASSES):
            raise UserError(f"The files in {home} do not belong together; replace them.")
        train, test = Images(x[:, None], y.long()), Images(x_test[:, None], y_test.long())
        prepare = Preparation(normalise="centre", shift=2, flip=True)
        return DataSet(self.name(), CLASSES, train, test, preparation=prepare, balanced=True, files=files)


def _read(path: Path, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the bytes of an IDX file, of this shape per image."""
    start = 8 + 4 * len(shape)
    try:
        with gzip.open(path) as file:
            content = file.read(LARGEST + 1)
        count, *sides = np.frombuffer(content[4:start], ">u4").tolist()
        if content[:4] != bytes((0, 0, 8, 1 + len(shape))) or tuple(sides) != shape or not count:
            raise ValueError("not such a file")
        return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(count, *shape).copy())
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(f"{path} is not a readable Fashion-MNIST file; replace it.") from error
