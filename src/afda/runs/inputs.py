"""Images to classify, found in folders, lists, tables, single files or arrays."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from afda.data.decode import is_image
from afda.data.files import TABLES, check_relative, find_images, read_rows
from afda.errors import UserError

LISTS = (".txt", ".npz")

Skip = Callable[[str, str], None]
"""Called with the name of an image that cannot be read, and the reason."""


class Item(NamedTuple):
    """An image to classify: its name in the output, and its file or its pixels."""

    name: str
    image: Path | np.ndarray


def find_items(arguments: Sequence[str], skip: Skip) -> Iterator[Item]:
    """Yield the images in these folders, files, lists, tables and arrays, in order, as they are needed."""
    paths = [Path(os.path.expanduser(name)) for name in arguments]
    for path in paths:  # a mistake is reported before the first million images, not after
        check_path(path)
    for path in paths:
        ending = path.suffix.lower()
        if path.is_dir():
            refused: list[tuple[str, str]] = []
            for name in find_images(path, path, refused):
                yield Item(str(path / name), path / name)
            for name, reason in refused:
                skip(name, reason)
        elif ending in TABLES:
            for line, row in enumerate(read_rows(path, ("path",)), start=2):
                yield Item(row["path"], path.parent / check_relative(row["path"], path, line))
        elif ending == ".txt":
            yield from read_list(path)
        elif ending == ".npz":
            from afda.data.arrays import load_images

            for i, image in enumerate(load_images(path)):
                yield Item(f"{path.name}:{i}", image)
        else:
            yield Item(str(path), path)


def check_path(path: Path) -> None:
    """Refuse a path that does not exist or holds no images."""
    if not os.path.exists(path):
        raise UserError(f"There is no file or folder {path}; give folders, images, .txt lists, tables or .npz files.")
    if not path.is_dir() and path.suffix.lower() not in (*TABLES, *LISTS) and not is_image(path):
        raise UserError(f"{path} is not an image, nor a folder, a .txt list, a table or an .npz file of images.")


def read_list(path: Path) -> Iterator[Item]:
    """Yield the images of a .txt file with one path per line, relative to its folder."""
    try:
        lines = path.open(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).") from None
    with lines:
        for name in filter(None, map(str.strip, lines)):
            yield Item(name, path.parent / name)
