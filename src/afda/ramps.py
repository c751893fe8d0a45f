"""Every schedule as a function of progress t, which runs from 0 at the first update to 1 at the end."""

import math


def mu(t: float, gamma: float = 10.0) -> float:
    """The weight of alignment: rises from 0 to 1.

    differs from the paper: (1 - e^(lambda t)) / (1 + e^(lambda t)) is negative for lambda > 0, which would have f help
    d. With lambda = -gamma it is this, the schedule of Ganin and Lempitsky (2015), whose gamma is 10.
    """
    return math.tanh(gamma * t / 2)


def ramp_up(t: float, length: float) -> float:
    """exp(-5 (1 - t/length)^2) up to `length`, then 1 (Laine and Aila, 2017): for the learning rate and eta."""
    return 1.0 if t >= length else math.exp(-5 * (1 - t / length) ** 2)


def ramp_down(t: float, length: float) -> float:
    """1, then exp(-12.5 x^2) over the last `length` (Laine and Aila, 2017)."""
    x = (t - (1 - length)) / length if length > 0 else -1.0
    return 1.0 if x <= 0 else math.exp(-12.5 * x**2)


def linear_tail(t: float, length: float, stairs: int) -> float:
    """1, then down to 1/stairs in equal steps over the last `length` (Miyato et al., 2018).

    differs from the paper: it prints a decay of 0.0025 per step, which would end at 90 % and not near zero.
    """
    x = (t - (1 - length)) / length if length > 0 else -1.0
    return 1.0 if x < 0 else 1.0 - min(int(x * stairs + 1e-9), stairs - 1) / stairs


def cosine(t: float, end: float) -> float:
    """Half a cosine that would reach 0 at t = `end` (Tarvainen and Valpola, 2017, stop before it does)."""
    return 0.5 * (1 + math.cos(math.pi * min(t / end, 1.0)))
