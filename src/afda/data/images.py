"""A data set: images, labels with -1 for none, class names, and how it is usually prepared."""

import os
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field
from torch import Tensor

from afda.data.hold_out import LOAD_RULES
from afda.errors import UserError
from afda.registry import Value

UNLABELLED = -1


@dataclass(frozen=True)
class Images:
    """Images as uint8 `(n, c, h, w)`, or vectors as float32 `(n, d)`, with one label each (-1 for none)."""

    x: Tensor
    y: Tensor
    paths: tuple[str, ...] | None = None
    """The file of each, relative to the data's folder, if each has one."""
    rows: np.ndarray | None = None
    """The row of each in its source; None if they are its first rows."""
    groups: np.ndarray | None = None
    """The number of each one's group, such as a burst or a video, if groups are given. Groups of all parts share their
    numbers, and an image of no group has a number of its own."""

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
        groups = None if self.groups is None else self.groups[index.numpy()]
        return Images(self.x[index], self.y[index], paths, self.source_rows[index.numpy()], groups)

    @property
    def source_rows(self) -> np.ndarray:
        """The row of each in its source."""
        return np.arange(len(self)) if self.rows is None else self.rows

    def name(self, row: int) -> str:
        """Return the name of an image: its file, or its number in its source."""
        return self.paths[row] if self.paths is not None else f"image {self.source_rows[row]}"


class Preparation(Value):
    """How images become the network's input, in training and after."""

    normalise: Literal["centre", "standard", "zca"] = Field(
        "centre", description="pixels to [-0.5, 0.5]; zero mean and unit variance per channel; whitened"
    )
    shift: int = Field(2, ge=0, le=1024, description="random shifts of up to this many pixels along each axis")
    padding: Literal["reflect", "zero"] = Field("reflect", description="what a shift brings in at the border")
    flip: bool = Field(False, description="random horizontal flips")
    clip: float | None = Field(
        None,
        gt=0,
        description="vectors: the most standard deviations that an input may be away from its mean; those beyond are "
        "moved there, so that none dominates. By default there is no limit",
    )


class SameImages(NamedTuple):
    """Images of a user's data that are exact copies of each other."""

    kinds: tuple[str, ...]
    """Where they occur, sorted: labelled, unlabelled, validation, test."""
    names: tuple[str, ...]
    contradicting: bool
    """Whether their labels differ."""
    dropped: bool
    """Whether some of them were dropped; if not, all are used."""
    kept: str | None
    """The name of the training image that stands for all of them, if some were dropped and one is left."""


@dataclass(frozen=True)
class DataSet:
    """Training images, a validation and a test set if there are any, and their source."""

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
    """The name of a data set, or the absolute path of a user's file."""
    more_labels: tuple[str, ...] = ()
    """The absolute paths of tables of labels that were added."""
    notes: tuple[str, ...] = ()
    """Notes for the user about these files, one sentence each."""
    warnings: tuple[str, ...] = ()
    """What is probably wrong with these files, one sentence each."""
    copies: tuple[SameImages, ...] = ()
    """Exact copies that were found in a user's own data as they were loaded."""
    group_by: str | None = None
    """What the groups of a folder's images were taken from, if the user asked for it."""
    load_rules: int = LOAD_RULES
    skipped: tuple[tuple[str, str], ...] = ()
    """Files that are not used, each with the reason."""

    @property
    def is_own(self) -> bool:
        """Whether the data are a user's own, so that nobody has chosen settings on them."""
        return os.path.isabs(self.source)

    def __post_init__(self) -> None:
        for part in (self.train, self.val, self.test):
            if part is None or not len(part):
                continue
            lowest, highest, last = int(part.y.min()), int(part.y.max()), len(self.classes) - 1
            if lowest < UNLABELLED or highest > last:
                wrong = lowest if lowest < UNLABELLED else highest
                raise UserError(f"Labels must be between 0 and {last} (or {UNLABELLED} for none), but one is {wrong}.")
