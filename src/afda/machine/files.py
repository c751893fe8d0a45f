"""Atomic writes, and one-sentence errors for what the file system refuses."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from afda.errors import RunFailed, UserError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, even if the power fails."""
    temporary = path.with_name(f".{path.name}.part")
    with explain_os_errors(path.parent):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk where the file system supports it, so that new names survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


@contextlib.contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a RunFailed if the disk is full, else into a UserError, each of one sentence."""
    try:
        yield
    except OSError as error:
        raise translate_os_error(error, path) from error


def translate_os_error(error: OSError, path: Path) -> RunFailed | UserError:
    """Return the one-sentence error for what the file system refused at this path."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunFailed(
            f"The disk that holds {path} is full; free some space, then give the command again "
            "(with --resume to continue a training)."
        )
    return UserError(f"{path} cannot be written ({error.strerror}); choose another --out.")


def check_writable(folder: Path) -> None:
    """Create an output folder and test that it is writable, so that a training does not fail at its end."""
    with explain_os_errors(folder):
        existing = next((path for path in (folder, *folder.parents) if path.exists()), folder)
        if existing.exists() and not existing.is_dir():
            raise UserError(f"{existing} is a file, not a folder; choose another --out.")
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
