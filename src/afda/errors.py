"""The two ways a command can fail: the user's mistake and the run's."""

import difflib
import re
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can put right. Its text is one sentence that says what to do; the program exits with 2."""


class InUse(UserError):
    """Another process is at work there; it will end."""


class RunFailed(Exception):
    """The run went wrong, through no fault in the command. The program exits with 1 and keeps what was written."""


def describe(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type."""
    return next(iter(str(error).splitlines()), "")[:200] or type(error).__name__


CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves the cursor, ends a line, turns text round, or is no character."""


def printable(text: str) -> str:
    """The text with control characters written out: names of files and classes come from anywhere."""
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def unknown(kind: str, name: str, known: Iterable[str], otherwise: str = "") -> UserError:
    """An error for a name that does not exist, with the nearest one that does; or else all of them, unless there is
    something better to say."""
    known = sorted(known)
    lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    near = near or [k for k in lower if k.startswith(name.lower()) and name]
    hint = f"did you mean {lower[near[0]]!r}?" if near else otherwise or f"choose from: {', '.join(known)}."
    return UserError(f"There is no {kind} called {name!r}; {hint}")
