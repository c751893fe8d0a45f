"""A reader of MATLAB 5 files that survives damaged ones; scipy's can crash the process."""

import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

# The format's codes for elements and for types of numbers.
MATRIX, COMPRESSED = 14, 15
NUMERIC_CLASSES = range(6, 16)
NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
LARGEST = 1 << 28
"""Bytes that a file, or a compressed element of it, may have."""


def read_matlab(path: Path, names: Collection[str]) -> dict[str, np.ndarray]:
    """Return those numeric arrays of a file that have one of these names.

    Raises ValueError if the file is damaged, and OSError if it cannot be read.
    """
    if path.stat().st_size > LARGEST:
        raise ValueError("too large")
    try:
        return _read_arrays(path.read_bytes(), names)
    except (LookupError, struct.error, zlib.error, MemoryError) as error:
        raise ValueError("damaged") from error


def _read_arrays(content: bytes, names: Collection[str]) -> dict[str, np.ndarray]:
    if content[124:128] != b"\x00\x01IM":
        raise ValueError("not a MATLAB 5 file")
    arrays = {}
    for kind, data in _elements(memoryview(content)[128:]):
        if kind == COMPRESSED:
            ((kind, data),) = _elements(_inflate(data))  # noqa: PLW2901
        if kind != MATRIX:
            continue
        (_, flags), *parts = _elements(data)
        if flags[0] in NUMERIC_CLASSES:
            (_, shape), (_, name), (numbers, values), *_ = parts
            flat = np.frombuffer(values, NUMBERS[numbers])
            if (text := bytes(name).decode("latin-1")) in names:
                arrays[text] = flat.reshape(np.frombuffer(shape, "<i4"), order="F")
    return arrays


def _elements(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the kind and the data of each element."""
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


def _inflate(data: memoryview) -> memoryview:
    """Return the content of a compressed element."""
    stream = zlib.decompressobj()
    content = stream.decompress(data, LARGEST)
    if not stream.eof:
        raise ValueError("a compressed element is cut short, or too large")
    return memoryview(content)
