"""Files of published data sets: found in the user's data folder, or downloaded to it once and verified."""

import gzip
import hashlib
import os
import sys
import tarfile
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from shutil import copyfileobj
from typing import IO, BinaryIO, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from afda.errors import UserError, describe

TIMEOUT = 20.0
CHUNK = 1 << 18
LARGEST_MEMBER = 1 << 28
LARGEST_ARCHIVE = 1 << 30
"""Bytes that are unpacked while looking for members."""


@dataclass(frozen=True)
class Remote:
    """A file as its publisher offers it."""

    name: str
    url: str
    md5: str


class Checksums(NamedTuple):
    """The two checksums of one file: MD5 is what publishers give, SHA-256 is what we record."""

    md5: str
    sha256: str


class Fetched(NamedTuple):
    """The paths of files by name, their SHA-256, and notes for the user."""

    paths: dict[str, Path]
    files: dict[str, str]
    notes: tuple[str, ...]


def find_data_folder() -> Path:
    """Return the folder of all data sets: $AFDA_DATA, or one in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return Path(os.path.expanduser(os.environ.get("AFDA_DATA") or os.path.join(cache, "afda"))).absolute()


def compute_checksums(path: Path) -> Checksums:
    """Return both checksums of a file, reading it once."""
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    try:
        if os.path.exists(path) and not path.is_file():  # a pipe could be waited for without end
            raise OSError("it is not a file")
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                md5.update(chunk)
                sha256.update(chunk)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({_explain(error)}); make it a readable file.") from error
    return Checksums(md5.hexdigest(), sha256.hexdigest())


def fetch(wanted: Sequence[Remote], folder: Path, *elsewhere: Path) -> Fetched:
    """Find each file in `folder` or `elsewhere`; download those that are in neither to `folder`."""

    def find(file: Remote) -> Path:
        places = [place / file.name for place in (folder, *elsewhere)]
        return next(filter(os.path.exists, places), places[0])

    paths, files, notes = {}, {}, []
    for file in wanted:
        path = paths[file.name] = find(file)
        try:
            sums = compute_checksums(path) if os.path.exists(path) else _download(file, path)
        except (OSError, HTTPException) as error:
            missing = [f.name for f in wanted if not os.path.exists(find(f))]
            it, they = ("it", "it") if len(missing) == 1 else ("them", "they")
            raise UserError(
                f"Put {_join_names(missing)} into {folder}, or set AFDA_DATA to the folder that has {it}; "
                f"{they} could not be downloaded ({_explain(error)})."
            ) from error
        files[file.name] = sums.sha256
        if sums.md5 != file.md5:
            notes.append(f"{file.name} is not the published file byte for byte (MD5 {sums.md5}, published {file.md5}).")
    return Fetched(paths, files, tuple(notes))


class BoundedGzip(gzip.GzipFile):
    """A gzip file that refuses large reads: tarfile reads a header of any size that an archive declares."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= 4 * CHUNK:
            raise tarfile.TarError(f"it has a header of {size} bytes")
        return super().read(size)


def unpack(archive: Path, folder: Path, names: Collection[str], limit: int = LARGEST_MEMBER) -> None:
    """Copy the regular files with these names, wherever they are in a tar archive, to `folder`."""
    left = set(names)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with BoundedGzip(archive) as content, tarfile.open(fileobj=content, mode="r:") as tar:
            while left and (member := tar.next()):
                if member.offset_data + member.size > LARGEST_ARCHIVE:
                    raise tarfile.TarError(f"it unpacks to more than {LARGEST_ARCHIVE:,} bytes")
                name = PurePosixPath(member.name).name
                if name not in left or not member.isreg():
                    continue
                if member.size > limit:
                    raise tarfile.TarError(f"{name} is larger than {limit:,} bytes")
                held = tar.extractfile(member)
                assert held is not None  # only links and folders have none
                _write(held, folder / name)
                left.remove(name)
        if left:
            raise tarfile.TarError(f"it lacks {_join_names(sorted(left))}")
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, MemoryError) as error:
        raise UserError(
            f"{archive} could not be unpacked into {folder} ({_explain(error)}); delete it to download it again."
        ) from error


def _write(content: IO[bytes], path: Path) -> None:
    # The process id keeps two runs that unpack at once from writing to the same file.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as out:
            copyfileobj(content, out, CHUNK)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _download(file: Remote, path: Path) -> Checksums:
    """Download a file, continuing an earlier attempt, and verify it before it gets its name."""
    part = path.with_name(f"{path.name}.part")
    have = part.stat().st_size if part.exists() else 0
    request = Request(file.url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urlopen(request, timeout=TIMEOUT) as answer:
            have = have if answer.status == 206 else 0
            with _open_part(part, have) as out:
                _receive(answer, out, file, have)
    except HTTPError as error:
        error.close()
        if not (have and error.code == 416):  # 416: nothing is left to send, so the part may be the whole
            raise
    sums = compute_checksums(part)
    if sums.md5 != file.md5:
        part.unlink()
        raise UserError(
            f"{file.name} was downloaded and deleted again, as its checksum is not the published one; "
            f"try again later or put the file into {path.parent} yourself."
        )
    part.replace(path)
    return sums


def _open_part(part: Path, have: int) -> BinaryIO:
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        return part.open("ab" if have else "wb")
    except OSError as error:
        raise UserError(
            f"{part.parent} cannot be written to ({_explain(error)}); set AFDA_DATA to a folder that can."
        ) from error


def _receive(answer: HTTPResponse, out: BinaryIO, file: Remote, have: int) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    total = None if answer.length is None else have + answer.length
    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"Downloading {file.name} from {file.url}", file=sys.stderr)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(file.name, total=total, completed=have)
        while chunk := answer.read(CHUNK):
            out.write(chunk)
            have += len(chunk)
            progress.update(task, completed=have)
    if total is not None and have < total:
        raise ConnectionError("the connection ended early; the next attempt goes on from there")


def _join_names(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _explain(error: BaseException) -> str:
    inner = getattr(error, "reason", None)
    if isinstance(inner, BaseException):
        return _explain(inner)
    return getattr(error, "strerror", None) or describe(error)
