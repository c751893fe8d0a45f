"""A JSON parser for files from outside: finite numbers, 64-bit integers and limited nesting, or a ValueError."""

import json
from typing import Any

MAX_DEPTH = 32


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; raise a ValueError unless it can be computed with and written again."""
    try:
        value = json.loads(text, parse_float=parse_finite, parse_int=parse_int64, parse_constant=parse_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    check_depth(value, MAX_DEPTH)
    return value


def parse_finite(text: str) -> float:
    """Return a finite number."""
    value = float(text)
    if not abs(value) < float("inf"):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def parse_int64(text: str) -> int:
    """Return an integer of at most 64 bits."""
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"the number {text[:20]}... is too large")
    return int(text)


def check_depth(value: Any, depth: int) -> None:
    """Raise a ValueError if lists and objects are nested more than `depth` levels deep."""
    if not depth:
        raise ValueError("it is nested too deeply")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(inner, dict | list):
            check_depth(inner, depth - 1)
