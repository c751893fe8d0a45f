"""Pictures in a page: many small images as one sprite sheet per data set."""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from afda.data.images import DataSet

SIDES = (64, 48, 32, 24, 16)
"""Longest side of a picture, from the best to the smallest that can be recognised."""
LOSSLESS = 4 * 2**20
"""Bytes of pixels up to which pictures are kept bit for bit."""
MAX_CHARACTERS = 14_000_000
"""Characters of a page that its pictures may take; the whole page then stays below 20 MB."""


@dataclass(frozen=True)
class SpriteSheet:
    """Pictures of equal size in rows, as one image in a data URL."""

    url: str
    columns: int
    width: int
    height: int
    count: int


@dataclass
class PictureCollector:
    """The images that a page shows, each once per data set; a picture is known by its number on its sheet."""

    numbers: dict[int, tuple[DataSet, dict[tuple[str, int], int]]] = field(default_factory=dict)

    def add(self, data: DataSet, part: str, rows: Sequence[int]) -> list[int] | None:
        """Add images of a part (train, test or val) and return their numbers; None if they are vectors."""
        if len(data.train.shape) != 3:
            return None
        _, numbers = self.numbers.setdefault(id(data), (data, {}))
        return [numbers.setdefault((part, int(row)), len(numbers)) for row in rows]

    def sheet_number(self, data: DataSet) -> int | None:
        """Return which sheet has the pictures of a data set, if any."""
        return list(self.numbers).index(id(data)) if id(data) in self.numbers else None

    def make_sheets(self) -> list[SpriteSheet]:
        """Return one sprite sheet per data set."""
        sheets = []
        for data, numbers in self.numbers.values():
            parts = {"train": data.train, "test": data.test, "val": data.val}
            images = [images.x[row] for part, row in numbers if (images := parts[part]) is not None]
            pixels = torch.stack(images).permute(0, 2, 3, 1).numpy()
            sheets.append(make_sprite_sheet(pixels, MAX_CHARACTERS // len(self.numbers)))
        return sheets


def make_sprite_sheet(images: np.ndarray, max_characters: int) -> SpriteSheet:
    """Return pictures `(n, h, w, c)` of uint8 as a sheet whose URL has at most `max_characters`, if possible.

    Larger sets are compressed with losses, and made smaller until they fit.
    """
    n, height, width, _ = images.shape
    columns = math.ceil(math.sqrt(n * height / width))
    for side in SIDES:
        tiles = shrink(images, side)
        lossless = side == SIDES[0] and tiles.nbytes <= LOSSLESS
        url = encode_webp(tiles, columns, lossless=lossless, quality=60 if lossless else 82, method=2)
        if len(url) <= max_characters:
            break
    return SpriteSheet(url, columns, width=tiles.shape[2], height=tiles.shape[1], count=n)


def shrink(images: np.ndarray, side: int) -> np.ndarray:
    """Return the pictures in RGB with a longest side of at most `side`; transparent pixels are laid on white."""
    from PIL import Image

    _, height, width, channels = images.shape
    scale = min(1.0, side / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    if channels == 1:
        images = np.broadcast_to(images, (*images.shape[:3], 3))
    elif channels == 4:
        alpha = images[..., 3:].astype(np.uint16)
        images = ((images[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
    if scale == 1:
        return np.ascontiguousarray(images)
    return np.stack(
        [np.asarray(Image.fromarray(np.ascontiguousarray(i)).resize(size, reducing_gap=3.0)) for i in images]
    )


def encode_webp(tiles: np.ndarray, columns: int, **options: Any) -> str:
    """Return a data URL of the tiles in rows of `columns`; the options are Pillow's for WebP."""
    from PIL import Image

    n, height, width, _ = tiles.shape
    rows = -(-n // columns)
    grid = np.zeros((rows * columns, height, width, 3), np.uint8)
    grid[:n] = tiles
    grid = grid.reshape(rows, columns, height, width, 3).swapaxes(1, 2).reshape(rows * height, columns * width, 3)
    buffer = io.BytesIO()
    Image.fromarray(grid).save(buffer, "WEBP", **options)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
