"""Times of things that are compared, taken in turns: what slows the machine down for a while slows down all of them."""

import statistics
import time
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from afda.runtime import settle

ROUNDS, MOST = 5, 50
SECONDS = 6.0


class Row(NamedTuple):
    """One figure of the benchmark: a median, and the range of the middle half of what was measured."""

    name: str
    value: float
    spread: float


Times = dict[str, list[float]]


def in_turns(**work: Callable[[], object]) -> Times:
    """Seconds that each takes, once per round after a round to warm up. Every round has an order of its own, for what
    comes after itself, or after its like, finds the caches warm.

    There are at least `ROUNDS` rounds, and more of what is short, until `SECONDS` have passed.
    """
    for do in work.values():
        do()
    taken: Times = {name: [] for name in work}
    began = time.perf_counter()
    order, random = list(work), Random(0)
    while len(taken[order[0]]) < ROUNDS or (time.perf_counter() - began < SECONDS and len(taken[order[0]]) < MOST):
        random.shuffle(order)
        for name in order:
            settle()
            start = time.perf_counter()
            work[name]()
            settle()
            taken[name].append(time.perf_counter() - start)
    return taken


def row(name: str, measured: list[float]) -> Row:
    if len(measured) < 2:
        return Row(name, measured[0], 0.0)
    low, middle, high = statistics.quantiles(measured, n=4, method="inclusive")
    return Row(name, middle, high - low)


def ratio(name: str, above: list[float], below: list[float], less: float = 0.0) -> Row:
    """How many times as long the first took as the second, round by round; `less` is taken off."""
    return row(name, [a / b - less for a, b in zip(above, below, strict=True)])
