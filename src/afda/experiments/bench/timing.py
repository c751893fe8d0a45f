"""Timing of pieces of work that are compared.

The pieces take turns, so that whatever slows the machine down for a while slows down all of them.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from afda.machine.runtime import synchronize

MIN_ROUNDS, MAX_ROUNDS = 5, 50
SECONDS = 6.0


class Row(NamedTuple):
    """One measurement: the median of the rounds and their interquartile range."""

    name: str
    value: float
    spread: float


Task = Callable[[], Iterator[Row]]
"""A measurement that can be started; it yields no row if this machine cannot measure it."""
Times = dict[str, list[float]]
"""Seconds of every round, by the name of the work."""


def measure_in_turns(**work: Callable[[], object]) -> Times:
    """Return the seconds that each piece of work takes, once per round, after one round of warm-up.

    Every round has its own random order, because work that follows itself or similar work finds warm caches. There are
    at least `MIN_ROUNDS` rounds, and for short work up to `MAX_ROUNDS` until `SECONDS` have passed.
    """
    for run in work.values():
        run()
    times: Times = {name: [] for name in work}
    order, random = list(work), Random(0)
    began, rounds = time.perf_counter(), 0
    while rounds < MIN_ROUNDS or (rounds < MAX_ROUNDS and time.perf_counter() - began < SECONDS):
        random.shuffle(order)
        for name in order:
            synchronize()
            start = time.perf_counter()
            work[name]()
            synchronize()
            times[name].append(time.perf_counter() - start)
        rounds += 1
    return times


def summarise(name: str, values: list[float]) -> Row:
    """Return the median and the interquartile range of the rounds."""
    if len(values) < 2:
        return Row(name, values[0], 0.0)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Row(name, middle, high - low)


def compute_ratio(name: str, numerator: list[float], denominator: list[float], minus: float = 0.0) -> Row:
    """Return the ratio of two pieces' times, round by round; `minus` is subtracted from each ratio."""
    return summarise(name, [a / b - minus for a, b in zip(numerator, denominator, strict=True)])
