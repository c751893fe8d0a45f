"""Image files decoded once, in parallel, and memory-mapped from then on.

A cache holds the pixels of one list of files at one shape, in a folder named after both; it is written aside and
renamed when it is whole, so that processes may share it. A changed file changes the name; rows of unchanged files are
copied from an earlier cache instead of being decoded again.
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

from afda.data.decode import Header, Unreadable, header, pixels
from afda.errors import UserError
from afda.strict_json import parsed

FORMAT = 1
KEPT = 3
"""Caches of one folder of images that are kept, the newest ones."""
AHEAD = 256
"""Files that may wait, decoded, for their turn."""
TOGETHER = 16
"""Files that a thread takes at a time: to hand over each by itself takes longer than to decode a small one."""
DEAD_AFTER = 86400.0
"""Seconds after which a cache that was never finished is cleared away."""

Progress = Callable[[int, int], None]
"""Told how many of how many files are done."""
Shape = tuple[int, int, int]
T = TypeVar("T")
R = TypeVar("R")


class Stamp(NamedTuple):
    """Path, size, and when content and permissions were last changed: by these a file is taken to be the same."""

    path: str
    size: int
    changed: int
    permitted: int


class Row(NamedTuple):
    """A decoded file: which it was, and the SHA-256 of its pixels."""

    path: str
    size: int
    changed: int
    permitted: int
    sha256: str

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.path, self.size, self.changed, self.permitted)


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
    known = known_headers(place / "headers.json")
    stamps, problems = stamped(root, paths)

    def told(stamp: Stamp) -> Header | str:
        if (found := known.get(stamp)) is not None:
            return found
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


def known_headers(path: Path) -> dict[Stamp, Header | str]:
    """What an earlier look at the files has found; nothing if it cannot be trusted."""
    try:
        pairs = [(made(Stamp, stamp), told) for stamp, told in read_json(path, [])]
        found = {stamp: told if isinstance(told, str) else made(Header, told) for stamp, told in pairs}
        return found if all(h.width > 0 < h.height for h in found.values() if isinstance(h, Header)) else {}
    except (TypeError, ValueError):
        return {}


def decoded(root: Path, paths: list[str], shape: Shape, progress: Progress | None = None) -> Decoded:
    """The images at these paths, from the cache if it has them."""
    stamps, problems = stamped(root, paths)
    place = place_of(root)
    name = hashlib.sha256(json.dumps([FORMAT, shape, stamps]).encode()).hexdigest()[:32]
    target = place / f"{'x'.join(map(str, shape))}-{name}"
    if (there := opened(target, shape, stamps)) is None:
        with writable(place):
            place.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=".part-", dir=place))
            try:
                fill(aside, root, stamps, shape, earlier(place, shape), progress)
                put(aside, target, shape, stamps)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            there = opened(target, shape, stamps)
            dead = [part for part in place.glob(".part-*") if time.time() - changed(part) > DEAD_AFTER]
            for old in (*dead, *sorted(place.glob("*x*-*"), key=changed, reverse=True)[KEPT:]):
                shutil.rmtree(old, ignore_errors=True)
        if there is None:
            raise UserError(f"The cache of decoded images in {target} cannot be read; delete that folder.")
    return Decoded(there.x, there.rows, (*problems, *there.skipped))


def put(aside: Path, target: Path, shape: Shape, stamps: list[Stamp]) -> None:
    """Give a whole cache its name; what another process has put there meanwhile is as good, unless it is damaged."""
    try:
        os.rename(aside, target)
    except OSError:
        if opened(target, shape, stamps) is None:
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


def opened(folder: Path, shape: Shape, stamps: list[Stamp] | None = None) -> Decoded | None:
    """A cache of this shape, and of these files if they are given, that is whole; memory-mapped."""
    about = read_json(folder / "about.json", None)
    try:
        rows = tuple(made(Row, row) for row in about["rows"])
        size = (len(rows), *shape)
        whole = (folder / "pixels").stat().st_size == math.prod(size) and tuple(about["shape"]) == shape
        told = sorted([row.path for row in rows] + [path for path, _ in about["skipped"]])
        if not whole or (stamps is not None and told != sorted(path for path, *_ in stamps)):
            return None
        x = np.memmap(folder / "pixels", np.uint8, "r", shape=size) if rows else np.zeros(size, np.uint8)
        with contextlib.suppress(OSError):  # somebody else's cache may be read only
            os.utime(folder)
        return Decoded(x, rows, tuple((path, str(reason)) for path, reason in about["skipped"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def earlier(place: Path, shape: Shape) -> Decoded | None:
    """The newest cache of the same folder at the same shape."""
    for folder in sorted(place.glob(f"{'x'.join(map(str, shape))}-*"), key=changed, reverse=True):
        if (found := opened(folder, shape)) is not None:
            return found
    return None


def changed(folder: Path) -> float:
    """When a folder was last changed."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def place_of(root: Path) -> Path:
    return cache_folder() / hashlib.sha256(str(root.resolve()).encode(errors="surrogateescape")).hexdigest()[:32]


def stamped(root: Path, paths: Iterable[str]) -> tuple[list[Stamp], list[tuple[str, str]]]:
    stamps, problems = [], []
    for path in paths:
        try:
            stat = os.stat(root / path)
            stamps.append(Stamp(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            problems.append((path, "there is no such file" if isinstance(error, FileNotFoundError) else reason))
    return stamps, problems


def in_parallel(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The results in the order of the items, a few ahead of their use; decoders release the interpreter, so threads are
    enough."""
    waiting: deque[Future[list[R]]] = deque()
    cores = os.cpu_count() or 1
    with warnings.catch_warnings(), ThreadPoolExecutor(cores) as pool:
        warnings.simplefilter("ignore")  # of Pillow's, about files that are odd but readable
        rest = iter(items)
        while part := list(islice(rest, TOGETHER)):
            waiting.append(pool.submit(lambda part: [work(item) for item in part], part))
            if len(waiting) > max(AHEAD // TOGETHER, 2 * cores):
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def made(kind: Callable[..., T], values: Iterable[Any]) -> T:
    """A named tuple whose fields are of the types that they should be, or a TypeError."""
    found: Any = kind(*values)
    if [type(value) for value in found] != list(found.__annotations__.values()):
        raise TypeError(f"not a {type(found).__name__}")
    return found


def read_json(path: Path, otherwise: Any) -> Any:
    try:
        return parsed(path.read_text(encoding="utf-8", errors="surrogateescape"))
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
