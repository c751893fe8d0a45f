"""Image files decoded once, in parallel, and memory-mapped from then on.

A cache holds the pixels of one list of files at one shape, in a folder named after both; it is written aside and
renamed when it is whole, so that processes may share it. A changed file changes the name; rows of unchanged files are
copied from an earlier cache instead of being decoded again.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from afda.data.decode import Header, Unreadable, header, pixels
from afda.errors import UserError

FORMAT = 1
KEPT = 3
"""Caches of one folder of images that are kept, the newest ones."""
AHEAD = 256
"""Files that may wait, decoded, for their turn."""
DEAD_AFTER = 86400.0
"""Seconds after which a cache that was never finished is cleared away."""

Progress = Callable[[int, int], None]
"""Told how many of how many files are done."""
Stamp = tuple[str, int, int, int]
"""Path, size, and when the content and the permissions were last changed: by these a file is taken to be the same."""
Shape = tuple[int, int, int]
T = TypeVar("T")
R = TypeVar("R")


class Row(NamedTuple):
    """A decoded file: which it was, and the SHA-256 of its pixels."""

    path: str
    size: int
    changed: int
    permitted: int
    sha256: str

    @property
    def stamp(self) -> Stamp:
        return self.path, self.size, self.changed, self.permitted


@dataclass(frozen=True)
class Decoded:
    """The pixels of those files that could be read, in their order, and why the others could not."""

    x: np.ndarray
    rows: tuple[Row, ...]
    skipped: tuple[tuple[str, str], ...]


def cache_folder() -> Path:
    """Where decoded images are kept: $AFDA_CACHE, or a folder in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return Path(os.path.expanduser(os.environ.get("AFDA_CACHE") or os.path.join(cache, "afda", "decoded"))).absolute()


def headers(root: Path, paths: list[str]) -> dict[str, Header | str]:
    """The size and mode of each image, or why it cannot be read; read once, as long as a file does not change."""
    place = place_of(root)
    known = {tuple(stamp): told for stamp, told in read_json(place / "headers.json", [])}
    stamps, problems = stamped(root, paths)

    def told(stamp: Stamp) -> Header | str:
        with contextlib.suppress(KeyError, TypeError):
            found = known[stamp]
            return found if isinstance(found, str) else Header(*found)
        try:
            return header(root / stamp[0])
        except Unreadable as problem:
            return str(problem)

    unknown = [stamp for stamp in stamps if stamp not in known]
    if unknown:
        known |= dict(zip(unknown, in_parallel(told, unknown), strict=True))
    found = [told(stamp) for stamp in stamps]
    if unknown:
        with writable(place):
            place.mkdir(parents=True, exist_ok=True)
            write_json(place / "headers.json", list(zip(stamps, found, strict=True)))
    return dict(problems) | {stamp[0]: h for stamp, h in zip(stamps, found, strict=True)}


def decoded(root: Path, paths: list[str], shape: Shape, progress: Progress | None = None) -> Decoded:
    """The images at these paths, from the cache if it has them."""
    stamps, problems = stamped(root, paths)
    place = place_of(root)
    name = hashlib.sha256(json.dumps([FORMAT, shape, stamps]).encode()).hexdigest()[:32]
    target = place / f"{'x'.join(map(str, shape))}-{name}"
    if (there := opened(target)) is None:
        with writable(place):
            place.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=".part-", dir=place))
            try:
                fill(aside, root, stamps, shape, earlier(place, shape), progress)
                put(aside, target)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            there = opened(target)
            dead = [part for part in place.glob(".part-*") if time.time() + age(part) > DEAD_AFTER]
            for old in (*dead, *sorted(place.glob("*x*-*"), key=age)[KEPT:]):
                shutil.rmtree(old, ignore_errors=True)
        if there is None:
            raise UserError(f"The cache of decoded images in {target} cannot be read; delete that folder.")
    return Decoded(there.x, there.rows, (*problems, *there.skipped))


def put(aside: Path, target: Path) -> None:
    """Give a whole cache its name; what another process has put there meanwhile is as good, unless it is damaged."""
    try:
        os.rename(aside, target)
    except OSError:
        if opened(target) is None:
            os.rename(target, aside.with_name(f"{aside.name}-damaged"))
            shutil.rmtree(aside.with_name(f"{aside.name}-damaged"), ignore_errors=True)
            os.rename(aside, target)


def fill(
    folder: Path, root: Path, stamps: list[Stamp], shape: Shape, before: Decoded | None, progress: Progress | None
) -> None:
    """Decode all files into a new cache; those that cannot be read leave no gap."""
    known = {row.stamp: i for i, row in enumerate(before.rows)} if before is not None else {}

    def image(stamp: Stamp) -> tuple[np.ndarray, str] | str:
        if before is not None and stamp in known:
            i = known[stamp]
            return before.x[i], before.rows[i].sha256
        try:
            found = pixels(root / stamp[0], shape)
        except Unreadable as problem:
            return str(problem)
        return found, hashlib.sha256(found.tobytes()).hexdigest()

    rows: list[Row] = []
    skipped: list[tuple[str, str]] = []
    with open(folder / "pixels", "wb") as file:
        for done, (stamp, found) in enumerate(zip(stamps, in_parallel(image, stamps), strict=True), start=1):
            if progress is not None and (done % AHEAD == 0 or done == len(stamps)):
                progress(done, len(stamps))
            if isinstance(found, str):
                skipped.append((stamp[0], found))
            else:
                file.write(found[0].tobytes())
                rows.append(Row(*stamp, found[1]))
    write_json(folder / "about.json", {"shape": shape, "rows": rows, "skipped": skipped})


def opened(folder: Path) -> Decoded | None:
    """A cache that is whole, memory-mapped."""
    about = read_json(folder / "about.json", None)
    try:
        rows = tuple(Row(*row) for row in about["rows"])
        shape = (len(rows), *about["shape"])
        x = np.memmap(folder / "pixels", np.uint8, "r", shape=shape) if rows else np.zeros(shape, np.uint8)
        with contextlib.suppress(OSError):  # somebody else's cache may be read only
            os.utime(folder)
        return Decoded(x, rows, tuple((path, reason) for path, reason in about["skipped"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def earlier(place: Path, shape: Shape) -> Decoded | None:
    """The newest cache of the same folder at the same shape."""
    for folder in sorted(place.glob(f"{'x'.join(map(str, shape))}-*"), key=age):
        if (found := opened(folder)) is not None:
            return found
    return None


def age(folder: Path) -> float:
    try:
        return -folder.stat().st_mtime
    except OSError:
        return 0.0


def place_of(root: Path) -> Path:
    return cache_folder() / hashlib.sha256(str(root.resolve()).encode(errors="surrogateescape")).hexdigest()[:32]


def stamped(root: Path, paths: Iterable[str]) -> tuple[list[Stamp], list[tuple[str, str]]]:
    stamps, problems = [], []
    for path in paths:
        try:
            stat = os.stat(root / path)
            stamps.append((path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            problems.append((path, "there is no such file" if isinstance(error, FileNotFoundError) else reason))
    return stamps, problems


def in_parallel(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The results in the order of the items, a few ahead of their use; decoders release the interpreter, so threads are
    enough."""
    waiting: deque[Future[R]] = deque()
    with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        warnings.simplefilter("ignore")  # of Pillow's, about files that are odd but readable
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def read_json(path: Path, otherwise: Any) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except (OSError, ValueError):
        return otherwise


def write_json(path: Path, value: Any) -> None:
    """Write aside and rename, so that a reader sees a whole file."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(value), encoding="utf-8", errors="surrogateescape")
    os.replace(aside, path)


@contextlib.contextmanager
def writable(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"Decoded images cannot be kept in {place} ({error.strerror}); name another folder in AFDA_CACHE."
        ) from None
