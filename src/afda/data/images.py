"""What a data set is here: images, labels with -1 for none, class names, and how it is usually prepared."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from afda.choices import Choice, Value
from afda.errors import UserError

UNLABELLED = -1


@dataclass(frozen=True)
class Images:
    """Images as uint8 `(n, c, h, w)`, or vectors as float32 `(n, d)`, with one label each (-1 for none)."""

    x: Tensor
    y: Tensor
    paths: tuple[str, ...] | None = None
    """The file of each, relative to the data's folder, if each has one."""
    rows: np.ndarray | None = None
    """Where each stands in its source, if they are not simply its first."""

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise UserError(f"There are {len(self.x)} images but {len(self.y)} labels; give one label per image.")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image, `(c, h, w)`, or of one vector, `(d,)`."""
        return tuple(self.x.shape[1:])

    def __getitem__(self, index: Tensor) -> "Images":
        paths = None if self.paths is None else tuple(np.array(self.paths, dtype=object)[index.numpy()])
        return Images(self.x[index], self.y[index], paths, self.source_rows[index.numpy()])

    @property
    def source_rows(self) -> np.ndarray:
        return np.arange(len(self)) if self.rows is None else self.rows

    def name(self, row: int) -> str:
        """What to call an image: its file, or its number in its source."""
        return self.paths[row] if self.paths is not None else f"image {self.source_rows[row]}"


class Preparation(Value):
    """How images become the network's input, in training and after."""

    normalise: Literal["centre", "standard", "zca"] = Field(
        "centre", description="pixels to [-0.5, 0.5]; zero mean and unit variance per channel; whitened"
    )
    shift: int = Field(2, ge=0, le=1024, description="random shifts of up to this many pixels along each axis")
    padding: Literal["reflect", "zero"] = Field("reflect", description="what a shift brings in at the border")
    flip: bool = Field(False, description="random horizontal flips")


@dataclass(frozen=True)
class DataSet:
    """Training images, a sealed test set if there is one, and where both came from."""

    name: str
    classes: tuple[str, ...]
    train: Images
    test: Images | None = None
    val: Images | None = None
    preparation: Preparation = field(default_factory=Preparation)
    balanced: bool = False
    """Whether the labelled subset is usually drawn with equally many images per class."""
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each source file: the fingerprint of the data."""
    source: str = ""
    """What `load` was given: a name, or the absolute path of a user's file."""
    more_labels: tuple[str, ...] = ()
    """The absolute paths of tables of labels that were added."""
    notes: tuple[str, ...] = ()
    """What the user should know about these files, one sentence each."""
    skipped: tuple[tuple[str, str], ...] = ()
    """Files that are not used, each with the reason."""

    def __post_init__(self) -> None:
        for part in (self.train, self.val, self.test):
            if part is None or not len(part):
                continue
            lowest, highest, last = int(part.y.min()), int(part.y.max()), len(self.classes) - 1
            if lowest < UNLABELLED or highest > last:
                wrong = lowest if lowest < UNLABELLED else highest
                raise UserError(f"Labels must be between 0 and {last} (or {UNLABELLED} for none), but one is {wrong}.")


class Source(Choice):
    """A data set known by name."""

    shelf: ClassVar[str] = "data.sets"

    def load(self, folder: Path) -> DataSet:
        """Read the set from `folder`, fetching its files there first if they are missing."""
        raise NotImplementedError
