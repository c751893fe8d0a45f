"""Files that are there whole or not at all, and a sentence for what the file system refuses."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from afda.errors import RunFailed, UserError


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, even if the power fails."""
    temporary = path.with_name(f".{path.name}.part")
    with refusals_explained(path.parent):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync(path.parent)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def sync(folder: Path) -> None:
    """Make the names in a folder last through a power failure, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


@contextlib.contextmanager
def refusals_explained(path: Path) -> Iterator[None]:
    """Turn what the file system refuses into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunFailed(
                f"The disk that holds {path} is full; free some space, then give the command again "
                "(with --resume to continue a training)."
            ) from error
        raise UserError(f"{path} cannot be written ({error.strerror}); choose another --out.") from error


def check_writable(folder: Path) -> None:
    """Make a folder to write results to; one that cannot be made or written to is found now, not after hours."""
    with refusals_explained(folder):
        there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
        if there.exists() and not there.is_dir():
            raise UserError(f"{there} is a file, not a folder; choose another --out.")
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
