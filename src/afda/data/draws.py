"""Random numbers of a batch's views, one row per image, kept apart from what is done with them."""

from dataclasses import dataclass, fields, replace
from typing import Self

from torch import Tensor


@dataclass(frozen=True)
class Draws:
    """The base of all draws: every field is a tensor with one row per image.

    With several processes the numbers are drawn for all images of the batch, and each process takes its own rows. So
    the number of processes does not change the views.
    """

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def rows(self, part: slice) -> Self:
        """Return the draws of some of the images."""
        columns: dict[str, Tensor] = {field.name: getattr(self, field.name)[part] for field in fields(self)}
        return replace(self, **columns)

    __getitem__ = rows
