"""JSON from outside: finite numbers of ordinary size, not nested without end, or a ValueError."""

import json
from typing import Any

DEEPEST = 32


def parsed(text: str) -> Any:
    """The value that a text stands for, if it can be computed with and written again."""
    try:
        value = json.loads(text, parse_float=finite, parse_int=ordinary, parse_constant=finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    refuse_depth(value, DEEPEST)
    return value


def finite(text: str) -> float:
    value = float(text)
    if not abs(value) < float("inf"):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def ordinary(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"{text[:20]} and so on is too large a number")
    return int(text)


def refuse_depth(value: Any, left: int) -> None:
    if not left:
        raise ValueError("it is nested too deeply")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(inner, dict | list):
            refuse_depth(inner, left - 1)
