"""One input tried: a reader returns or says what is wrong in one sentence; it runs nothing and stays in its folder."""

import os
import sys
import tempfile
import warnings
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import joblib
from targets import DAMAGE, TARGETS, finished

from afda.errors import RunFailed, UserError

RUNS = {"os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen"}
RUNS |= {"pickle.find_class", "socket.connect", "urllib.Request", "webbrowser.open"}
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.utime"}


def try_one(name: str, content: bytes) -> str:
    """What became of it: read or refused. Anything else is raised."""
    finished()
    TARGETS[name].seeds()  # made before anything is watched
    joblib.cpu_count(only_physical_cores=True)  # asks lscpu once, for t-SNE
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="afda-fuzz-"))).resolve()
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(mock.patch.dict(os.environ, AFDA_CACHE=str(place / "cache"), AFDA_DATA=str(place / "data")))
        WATCHED.update(folder=str(place), seen=[])
        try:
            TARGETS[name].read(place, content)
            outcome = "read"
        except (UserError, RunFailed, *DAMAGE) as error:
            outcome = str(error)
        finally:
            seen = WATCHED.pop("seen")
            WATCHED.clear()
        assert len(outcome.splitlines()) == 1, f"not a sentence: {outcome}"
        assert not seen, f"reading {name} did this: {seen}"
    return outcome if outcome == "read" else "refused"


WATCHED: dict = {}


def watch(event: str, arguments: tuple) -> None:
    """Python tells of every program run, every file opened to be written and every change to a folder."""
    seen = WATCHED.get("seen")
    if seen is None:
        return
    if event in RUNS:
        seen.append((event, str(arguments)[:200]))
    elif event == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes | os.PathLike) and (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            outside(seen, event, path)
    elif event in CHANGES:
        # The last argument may be an open folder that the path is relative to.
        folder = f"/proc/self/fd/{arguments[-1]}" if event in ("os.remove", "os.rmdir") and arguments[-1] >= 0 else ""
        for path in arguments[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]:
            outside(seen, event, os.path.join(folder, os.fsdecode(path)))


def outside(seen: list, event: str, path: object) -> None:
    place = os.path.realpath(os.fsdecode(path))
    inside = (place + os.sep).startswith(WATCHED["folder"] + os.sep)
    if not inside and place != os.devnull and "__pycache__" not in place:
        seen.append((event, place))


sys.addaudithook(watch)
