"""Street View House Numbers, the cropped digits."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from afda.data.download import Remote, fetch
from afda.data.images import DataSet, Images, Preparation, Source
from afda.errors import UserError

URL = "http://ufldl.stanford.edu/housenumbers/"
TRAIN = Remote("train_32x32.mat", URL + "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373")
TEST = Remote("test_32x32.mat", URL + "test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3")

# MATLAB's codes for what an element of a file is, and for the numbers in it.
MATRIX, COMPRESSED = 14, 15
NUMERIC_CLASSES = range(6, 16)
NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
LARGEST = 1 << 28


class SVHN(Source):
    """House-number digits in colour, 32 by 32 pixels: 73,257 to train on and 26,032 to test on."""

    def load(self, folder: Path) -> DataSet:
        found = fetch((TRAIN, TEST), folder / "svhn", folder)
        return DataSet(
            name=self.name(),
            classes=tuple("0123456789"),
            train=_read(found.paths[TRAIN.name]),
            test=_read(found.paths[TEST.name]),
            preparation=Preparation(normalise="centre", shift=2, flip=False),
            balanced=False,
            files=found.files,
            notes=found.notes,
        )


def _read(path: Path) -> Images:
    unreadable = UserError(f"{path} is not a readable SVHN file: delete it to download it again.")
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError("too large")
        held = _arrays(path.read_bytes())
    except (OSError, ValueError, LookupError, struct.error, zlib.error, MemoryError) as error:
        raise unreadable from error
    x, y = held.get("X"), held.get("y")
    if (
        x is None
        or y is None
        or x.dtype != np.uint8
        or x.shape != (32, 32, 3, y.size)
        or not y.size
        or not np.isin(y, np.arange(1, 11)).all()
    ):
        raise unreadable
    # The file is (h, w, c, n) and writes the digit 0 as 10.
    digits = y.flatten().astype(np.int64) % 10
    return Images(torch.from_numpy(x.transpose(3, 2, 0, 1).copy()), torch.from_numpy(digits))


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    """The arrays X and y of a MATLAB 5 file; scipy's reader would do, but damaged files crash the process."""
    if content[124:128] != b"\x00\x01IM":
        raise ValueError("not a MATLAB 5 file")
    arrays = {}
    for kind, data in _elements(memoryview(content)[128:]):
        if kind == COMPRESSED:
            ((kind, data),) = _elements(_inflated(data))  # noqa: PLW2901
        if kind != MATRIX:
            continue
        (_, flags), *parts = _elements(data)
        if flags[0] in NUMERIC_CLASSES:
            (_, shape), (_, name), (numbers, values), *_ = parts
            flat = np.frombuffer(values, NUMBERS[numbers])
            if bytes(name) in (b"X", b"y"):
                arrays[bytes(name).decode()] = flat.reshape(np.frombuffer(shape, "<i4"), order="F")
    return arrays


def _elements(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The kind and the data of each element in a row of them."""
    while content:
        kind, size = struct.unpack_from("<II", content)
        start = 8
        if kind >> 16:  # a small element has its size in the word of its kind, and its data in the word of the size
            kind, size, start = kind & 0xFFFF, kind >> 16, 4
        end = start + size
        if end > len(content) or (start == 4 and size > 4):
            raise ValueError("an element is cut short")
        yield kind, content[start:end]
        content = content[end if kind == COMPRESSED else end + -end % 8 :]


def _inflated(data: memoryview) -> memoryview:
    stream = zlib.decompressobj()
    content = stream.decompress(data, LARGEST)
    if not stream.eof:
        raise ValueError("a compressed element is cut short, or too large")
    return memoryview(content)
