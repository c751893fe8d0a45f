"""The page as one HTML file, with its values, style, script and pictures inside."""

import base64
import hashlib
import html
import json
import re
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from afda.report.collect import Report

SCRIPTS = (
    "elements.js",
    "metrics.js",
    "charts.js",
    "images.js",
    "verdict.js",
    "runs.js",
    "selection.js",
    "training.js",
    "embedding.js",
    "embedding_controls.js",
    "shares.js",
    "evaluation.js",
    "page.js",
)
"""The parts of the page's script, in the order in which they run."""
ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})
"""Characters that could end the element that holds the values, or the line in an older reader."""


def render_page(report: Report) -> str:
    """Return the page of a report.

    Nothing in it is fetched, and only its own script runs: its policy has the checksums of script and style. Values
    reach the page as data and are shown as text.
    """
    style, script = read_asset("page.css"), join_scripts()
    parts = {
        "title": html.escape(report.title),
        "policy": (
            f"default-src 'none'; img-src data:; style-src '{checksum(style)}'; script-src '{checksum(script)}'; "
            "base-uri 'none'; form-action 'none'"
        ),
        "style": style,
        "script": script,
        "summary": "".join(f"<p>{html.escape(sentence)}</p>" for sentence in report.summary),
        "values": encode_values(asdict(report)),
    }
    # In one pass, so that a value that looks like a placeholder stays what it is.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], read_asset("page.html"))


def join_scripts() -> str:
    """Return the page's script: its parts in one function, so that their names stay their own."""
    return "\n".join(['"use strict";', "(() => {", *map(read_asset, SCRIPTS), "})();\n"])


def encode_values(values: Any) -> str:
    """Return JSON that can stand inside a script element."""
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(ESCAPES)


def read_asset(name: str) -> str:
    """Return the text of a file in `assets/`."""
    return files("afda.report").joinpath("assets", name).read_text(encoding="utf-8")


def checksum(text: str) -> str:
    """Return a checksum as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
