"""The two consoles: results go to standard output, everything else to standard error."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from afda.errors import printable


class PlainConsole(Console):
    """A console that prints names of files and classes as they are.

    They are not read as markup, and control characters in them neither move the cursor nor colour what follows.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


# A file or a pipe has no width to keep to, and a table must not lose digits to one.
out = PlainConsole(soft_wrap=True, markup=False, emoji=False, width=None if sys.stdout.isatty() else 160)
err = PlainConsole(stderr=True, soft_wrap=True, markup=False, emoji=False)


def to_text(text: str) -> Text:
    """Return a text for a place that would read a string as markup."""
    return Text(printable(text))


def print_result(text: str) -> None:
    """Print a line to standard output."""
    out.print(text, highlight=False)


def print_status(text: str) -> None:
    """Print a line to standard error."""
    err.print(text, highlight=False)


def print_note(text: str) -> None:
    """Print what the user should know to standard error."""
    print_status(f"Note: {text}")


def print_warning(text: str) -> None:
    """Print what is probably wrong to standard error."""
    print_status(f"Warning: {text}")


def print_json(value: Any) -> None:
    """Print a value as JSON to standard output."""
    print(json.dumps(value, indent=2))
