"""The cache of decoded images: files are decoded once, in parallel, and memory-mapped afterwards.

A cache holds the pixels of one list of files at one shape, in a folder named after both. It is written to a temporary
folder and renamed when it is complete, so that processes may share it. A changed file changes the name; rows of
unchanged files are copied from an earlier cache instead of being decoded again.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from afda.data.decode import Header, Unreadable, decode_image, read_header
from afda.errors import UserError
from afda.machine.strict_json import parse_json

FORMAT = 1
KEPT = 3
"""The number of caches that are kept for one folder of images, the newest ones."""
AHEAD = 256
"""Decoded files that may wait for their turn."""
TOGETHER = 16
"""Files that a thread takes at a time; one by one, passing them on takes longer than decoding small ones."""
DEAD_AFTER = 86400.0
"""Seconds after which an unfinished cache is deleted."""

Progress = Callable[[int, int], None]
"""Called with the number of files that are done and of all files."""
Shape = tuple[int, int, int]
T = TypeVar("T")
R = TypeVar("R")


class Stamp(NamedTuple):
    """Path, size, and times of the last change of content and metadata; files with the same stamp count as the same."""

    path: str
    size: int
    changed: int
    permitted: int


class Row(NamedTuple):
    """A decoded file: its stamp, and the SHA-256 of its pixels."""

    path: str
    size: int
    changed: int
    permitted: int
    sha256: str

    @property
    def stamp(self) -> Stamp:
        """The stamp of the file."""
        return Stamp(self.path, self.size, self.changed, self.permitted)


@dataclass(frozen=True)
class Decoded:
    """The pixels of the files that could be read, in their order, and the reasons why the others could not."""

    x: np.ndarray
    rows: tuple[Row, ...]
    skipped: tuple[tuple[str, str], ...]


def find_cache_folder() -> Path:
    """Return the folder of all caches: $AFDA_CACHE, or a folder in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return Path(os.path.expanduser(os.environ.get("AFDA_CACHE") or os.path.join(cache, "afda", "decoded"))).absolute()


def read_headers(root: Path, paths: list[str]) -> dict[str, Header | str]:
    """Return the header of each image, or the reason why it cannot be read; unchanged files are read only once."""
    place = locate_caches(root)
    known = load_headers(place / "headers.json")
    stamps, problems = stamp_files(root, paths)

    def read_one(stamp: Stamp) -> Header | str:
        if (found := known.get(stamp)) is not None:
            return found
        try:
            return read_header(root / stamp[0])
        except Unreadable as problem:
            return str(problem)

    unknown = [stamp for stamp in stamps if stamp not in known]
    if unknown:
        known |= dict(zip(unknown, map_in_parallel(read_one, unknown), strict=True))
    found = [read_one(stamp) for stamp in stamps]
    if unknown:
        with report_unwritable(place):
            place.mkdir(parents=True, exist_ok=True)
            write_json(place / "headers.json", list(zip(stamps, found, strict=True)))
    return dict(problems) | {stamp[0]: h for stamp, h in zip(stamps, found, strict=True)}


def load_headers(path: Path) -> dict[Stamp, Header | str]:
    """Return the headers that an earlier call stored; none if the file is damaged."""
    try:
        pairs = [(make_tuple(Stamp, stamp), value) for stamp, value in read_json(path, [])]
        found = {stamp: value if isinstance(value, str) else make_tuple(Header, value) for stamp, value in pairs}
        return found if all(h.width > 0 < h.height for h in found.values() if isinstance(h, Header)) else {}
    except (TypeError, ValueError):
        return {}


def decode_images(root: Path, paths: list[str], shape: Shape, progress: Progress | None = None) -> Decoded:
    """Return the images at these paths, from the cache if it has them."""
    stamps, problems = stamp_files(root, paths)
    place = locate_caches(root)
    name = hashlib.sha256(json.dumps([FORMAT, shape, stamps]).encode()).hexdigest()[:32]
    target = place / f"{'x'.join(map(str, shape))}-{name}"
    if (there := open_cache(target, shape, stamps)) is None:
        with report_unwritable(place):
            place.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=".part-", dir=place))
            try:
                write_cache(aside, root, stamps, shape, find_earlier(place, shape), progress)
                move_into_place(aside, target, shape, stamps)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            there = open_cache(target, shape, stamps)
            dead = [part for part in place.glob(".part-*") if time.time() - read_mtime(part) > DEAD_AFTER]
            for old in (*dead, *sorted(place.glob("*x*-*"), key=read_mtime, reverse=True)[KEPT:]):
                shutil.rmtree(old, ignore_errors=True)
        if there is None:
            raise UserError(f"The cache of decoded images in {target} cannot be read; delete that folder.")
    return Decoded(there.x, there.rows, (*problems, *there.skipped))


def move_into_place(aside: Path, target: Path, shape: Shape, stamps: list[Stamp]) -> None:
    """Rename a complete cache to its final name, unless another process has written it meanwhile."""
    try:
        os.rename(aside, target)
    except OSError:
        if open_cache(target, shape, stamps) is None:
            os.rename(target, aside.with_name(f"{aside.name}-damaged"))
            shutil.rmtree(aside.with_name(f"{aside.name}-damaged"), ignore_errors=True)
            os.rename(aside, target)


def write_cache(
    folder: Path, root: Path, stamps: list[Stamp], shape: Shape, before: Decoded | None, progress: Progress | None
) -> None:
    """Decode all files into a new cache, without gaps for those that cannot be read."""
    known = {row.stamp: i for i, row in enumerate(before.rows)} if before is not None else {}

    def decode_one(stamp: Stamp) -> tuple[np.ndarray, str] | str:
        if before is not None and stamp in known:
            i = known[stamp]
            return before.x[i], before.rows[i].sha256
        try:
            found = decode_image(root / stamp[0], shape)
        except Unreadable as problem:
            return str(problem)
        return found, hashlib.sha256(found.tobytes()).hexdigest()

    rows: list[Row] = []
    skipped: list[tuple[str, str]] = []
    with open(folder / "pixels", "wb") as file:
        for done, (stamp, found) in enumerate(zip(stamps, map_in_parallel(decode_one, stamps), strict=True), start=1):
            if progress is not None and (done % AHEAD == 0 or done == len(stamps)):
                progress(done, len(stamps))
            if isinstance(found, str):
                skipped.append((stamp[0], found))
            else:
                file.write(found[0].tobytes())
                rows.append(Row(*stamp, found[1]))
    write_json(folder / "about.json", {"shape": shape, "rows": rows, "skipped": skipped})


def open_cache(folder: Path, shape: Shape, stamps: list[Stamp] | None = None) -> Decoded | None:
    """Return a complete cache of this shape, and of these files if they are given, memory-mapped; else None."""
    about = read_json(folder / "about.json", None)
    try:
        rows = tuple(make_tuple(Row, row) for row in about["rows"])
        size = (len(rows), *shape)
        whole = (folder / "pixels").stat().st_size == math.prod(size) and tuple(about["shape"]) == shape
        names = sorted([row.path for row in rows] + [path for path, _ in about["skipped"]])
        if not whole or (stamps is not None and names != sorted(path for path, *_ in stamps)):
            return None
        x = np.memmap(folder / "pixels", np.uint8, "r", shape=size) if rows else np.zeros(size, np.uint8)
        with contextlib.suppress(OSError):  # a shared cache may be read-only
            os.utime(folder)
        return Decoded(x, rows, tuple((path, str(reason)) for path, reason in about["skipped"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def find_earlier(place: Path, shape: Shape) -> Decoded | None:
    """Return the newest cache of the same folder at the same shape, or None."""
    for folder in sorted(place.glob(f"{'x'.join(map(str, shape))}-*"), key=read_mtime, reverse=True):
        if (found := open_cache(folder, shape)) is not None:
            return found
    return None


def read_mtime(folder: Path) -> float:
    """Return the time of a folder's last change."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def locate_caches(root: Path) -> Path:
    """Return the folder with the caches of one folder of images."""
    return find_cache_folder() / hashlib.sha256(str(root.resolve()).encode(errors="surrogateescape")).hexdigest()[:32]


def stamp_files(root: Path, paths: Iterable[str]) -> tuple[list[Stamp], list[tuple[str, str]]]:
    """Return the stamps of the files that exist, and the others with the reason."""
    stamps, problems = [], []
    for path in paths:
        try:
            stat = os.stat(root / path)
            stamps.append(Stamp(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            problems.append((path, "there is no such file" if isinstance(error, FileNotFoundError) else reason))
    return stamps, problems


def map_in_parallel(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield the results in the order of the items, computed a few ahead.

    Threads are enough, because decoders release the interpreter's lock.
    """
    waiting: deque[Future[list[R]]] = deque()
    cores = os.cpu_count() or 1
    with warnings.catch_warnings(), ThreadPoolExecutor(cores) as pool:
        warnings.simplefilter("ignore")  # Pillow warns about files that are odd but readable
        rest = iter(items)
        while part := list(islice(rest, TOGETHER)):
            waiting.append(pool.submit(lambda part: [work(item) for item in part], part))
            if len(waiting) > max(AHEAD // TOGETHER, 2 * cores):
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def make_tuple(kind: Callable[..., T], values: Iterable[Any]) -> T:
    """Return a named tuple, or raise a TypeError if its fields have other types than declared."""
    found = kind(*values)
    fields: Any = found
    if [type(value) for value in fields] != list(fields.__annotations__.values()):
        raise TypeError(f"not a {type(found).__name__}")
    return found


def read_json(path: Path, otherwise: Any) -> Any:
    """Return the content of a JSON file, or `otherwise` if it cannot be read."""
    try:
        return parse_json(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except (OSError, ValueError):
        return otherwise


def write_json(path: Path, value: Any) -> None:
    """Write a temporary file and rename it, so that readers see a complete file."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(value), encoding="utf-8", errors="surrogateescape")
    os.replace(aside, path)


@contextlib.contextmanager
def report_unwritable(place: Path) -> Iterator[None]:
    """Turn an OSError into a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"Decoded images cannot be stored in {place} ({error.strerror}); set AFDA_CACHE to another folder."
        ) from None
