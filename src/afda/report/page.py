"""The page about finished runs: one HTML file of plain values, with its style, script and pictures inside."""

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any

ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})
"""What could end the element that holds the values, or the line in an older reader."""


def page(values: dict[str, Any]) -> str:
    """The page for these values, which `afda.findings` gathers.

    Nothing in it is fetched, and only its own script runs: the browser is told the checksums of both. Values reach the
    page as data and are shown as text.
    """
    style, script = own("page.css"), own("page.js")
    parts = {
        "title": html.escape(values["title"]),
        "policy": (
            f"default-src 'none'; img-src data:; style-src '{checksum(style)}'; script-src '{checksum(script)}'; "
            "base-uri 'none'; form-action 'none'"
        ),
        "style": style,
        "script": script,
        "summary": "".join(f"<p>{html.escape(sentence)}</p>" for sentence in values["summary"]),
        "values": as_data(values),
    }
    # In one pass, so that a value that looks like a mark stays what it is.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], own("page.html"))


def as_data(values: Any) -> str:
    """JSON that can stand inside a script element."""
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(ESCAPES)


def own(name: str) -> str:
    return files("afda.report").joinpath(name).read_text(encoding="utf-8")


def checksum(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
