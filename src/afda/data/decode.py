"""Decode an image file to pixels of a given shape: any mode and orientation, within a limit of memory."""

import os
import stat
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from afda.errors import describe

SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif", ".ico", ".tga"),
)
GREY = frozenset(("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N", "F"))
MOST_PIXELS = 100_000_000
"""Larger images are refused: a file of a few kilobytes can claim to be of any size."""


class Unreadable(Exception):
    """Why a file is not used, in a few words."""


class Header(NamedTuple):
    """The size and mode that a file declares."""

    width: int
    height: int
    mode: str

    @property
    def grey(self) -> bool:
        return self.mode in GREY


def is_image(path: Path) -> bool:
    """Return True if a file has the name of an image."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def read_header(path: Path) -> Header:
    """Return the size, once upright, and the mode of an image."""
    with open_image(path) as image:
        width, height = image.size
        if is_sideways(image):
            width, height = height, width
        return Header(width, height, image.mode)


def decode_image(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """Return the image as uint8 `(c, h, w)`: upright, scaled to cover the shape, and cropped to its centre."""
    channels, height, width = shape
    with open_image(path) as image:
        try:
            # A JPEG file is decoded at a fraction of its size where that is enough. The shape is for the upright image.
            image.draft(None, (2 * height, 2 * width) if is_sideways(image) else (2 * width, 2 * height))
            image.load()
            upright = ImageOps.exif_transpose(shrink(image, 2 * max(height, width)))
            plain = convert_mode(upright, "L" if channels == 1 else "RGB" if channels == 3 else "RGBA")
            if plain.size != (width, height):
                plain = ImageOps.fit(plain, (width, height), Image.Resampling.BICUBIC)
        except MemoryError:
            raise Unreadable("too large for the memory") from None
        except Exception as error:  # decoders raise almost anything on damaged files
            raise Unreadable(f"damaged: {describe(error)}") from error
    return np.asarray(plain).reshape(height, width, channels).transpose(2, 0, 1)


@cache
def list_formats() -> list[str]:
    """Return the formats of SUFFIXES. Pillow has more, among them PostScript, for which it runs a program."""
    Image.init()
    return sorted({Image.EXTENSION[suffix] for suffix in SUFFIXES if suffix in Image.EXTENSION} & Image.OPEN.keys())


def open_image(path: Path) -> Image.Image:
    """Open an image without decoding it, or raise Unreadable."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe could be waited for without end
            raise Unreadable("not a file")
        image = Image.open(path, formats=list_formats())
    except Unreadable:
        raise
    except FileNotFoundError:
        raise Unreadable("there is no such file") from None
    except UnidentifiedImageError:
        raise Unreadable("not an image") from None
    except Image.DecompressionBombError:
        raise Unreadable(f"more than {MOST_PIXELS // 1_000_000} million pixels") from None
    except Exception as error:
        raise Unreadable(f"cannot be opened: {describe(error)}") from error
    if image.width * image.height > MOST_PIXELS:
        image.close()
        raise Unreadable(f"more than {MOST_PIXELS // 1_000_000} million pixels")
    return image


def shrink(image: Image.Image, side: int) -> Image.Image:
    """Return a large image reduced by a whole factor, to no less than `side`, so that later steps take less memory."""
    factor = min(image.width, image.height) // side
    return image.reduce(factor) if factor > 1 and image.mode in ("L", "LA", "RGB", "RGBA", "CMYK") else image


def is_sideways(image: Image.Image) -> bool:
    """Return True if the camera was held upright, so that width and height change places."""
    try:
        return image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
    except Exception:
        return False


def convert_mode(image: Image.Image, mode: str) -> Image.Image:
    """Return the image in this mode: transparent parts on white, deeper grey values scaled to 0..255."""
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        values = np.nan_to_num(np.asarray(image, dtype=np.float32))
        # Whole numbers are of 16 bits; floats are from 0 to 1, or else from 0 to 255.
        top = 65535.0 if image.mode == "I" else 1.0 if values.max(initial=0) <= 1 else 255.0
        image = Image.fromarray(np.clip(values * (255.0 / top), 0, 255).round().astype(np.uint8))
    elif mode != "RGBA" and (image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info):
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    if image.mode in ("LAB", "HSV"):
        image = image.convert("RGB")
    return image if image.mode == mode else image.convert(mode)
