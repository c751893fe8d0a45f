"""Many small pictures as one image that a page can carry."""

import base64
import io
import math
from typing import Any

import numpy as np

SIDES = (64, 48, 32, 24, 16)
"""Longest side of a picture, from the best to the smallest that can be recognised."""
LOSSLESS = 4 * 2**20
"""Bytes of pixels up to which pictures are kept bit for bit."""


def sheet(images: np.ndarray, most: int) -> dict[str, Any]:
    """Pictures `(n, h, w, c)` of uint8 side by side in rows, as a data URL of at most `most` characters if it can be.

    Larger sets are compressed, and made smaller until they fit.
    """
    n, height, width, _ = images.shape
    columns = math.ceil(math.sqrt(n * height / width))
    for side in SIDES:
        tiles = shrunk(images, side)
        lossless = side == SIDES[0] and tiles.nbytes <= LOSSLESS
        url = as_url(tiles, columns, lossless=lossless, quality=60 if lossless else 82, method=2)
        if len(url) <= most:
            break
    return {"url": url, "columns": columns, "width": tiles.shape[2], "height": tiles.shape[1], "count": n}


def shrunk(images: np.ndarray, side: int) -> np.ndarray:
    """The pictures in RGB with a longest side of at most `side`; what is transparent is laid on white."""
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


def as_url(tiles: np.ndarray, columns: int, **how: Any) -> str:
    from PIL import Image

    n, height, width, _ = tiles.shape
    rows = -(-n // columns)
    grid = np.zeros((rows * columns, height, width, 3), np.uint8)
    grid[:n] = tiles
    grid = grid.reshape(rows, columns, height, width, 3).swapaxes(1, 2).reshape(rows * height, columns * width, 3)
    buffer = io.BytesIO()
    Image.fromarray(grid).save(buffer, "WEBP", **how)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
