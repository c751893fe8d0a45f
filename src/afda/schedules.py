"""Every schedule as a function of progress t, which runs from 0 at the first update to 1 at the end."""

import math
from typing import Literal, NamedTuple

from pydantic import Field

from afda.registry import Value


def compute_progress(step: int, steps: int, every: int = 1) -> float:
    """Return t in [0, 1) at an update, which changes after `every` updates; for mu and the weights of methods."""
    return step // every * every / steps


def rise_mu(t: float, gamma: float = 10.0) -> float:
    """Return the weight of alignment, which rises from 0 to 1: tanh(gamma t / 2).

    This differs from the paper: (1 - e^(lambda t)) / (1 + e^(lambda t)) is negative for lambda > 0, so f would help d.
    With lambda = -gamma it is the schedule of Ganin and Lempitsky (2015), whose gamma is 10.
    """
    return math.tanh(gamma * t / 2)


def ramp_up(t: float, length: float) -> float:
    """Return exp(-5 (1 - t/length)^2) up to `length`, then 1 (Laine and Aila, 2017): for learning rates and weights."""
    return 1.0 if t >= length else math.exp(-5 * (1 - t / length) ** 2)


def ramp_down(t: float, length: float) -> float:
    """Return 1, then exp(-12.5 x^2) over the last `length` (Laine and Aila, 2017)."""
    x = (t - (1 - length)) / length if length > 0 else -1.0
    return 1.0 if x <= 0 else math.exp(-12.5 * x**2)


def linear_tail(t: float, length: float, stairs: int) -> float:
    """Return 1, then fall to 1/stairs in equal steps over the last `length` (Miyato et al., 2018).

    This differs from the paper, which prints a decay of 0.0025 per step: that would end at 90 % and not near zero.
    """
    x = (t - (1 - length)) / length if length > 0 else -1.0
    return 1.0 if x < 0 else 1.0 - min(int(x * stairs + 1e-9), stairs - 1) / stairs


def cosine(t: float, end: float) -> float:
    """Return half a cosine that would reach 0 at t = `end` (Tarvainen and Valpola, 2017, stop before it does)."""
    return 0.5 * (1 + math.cos(math.pi * min(t / end, 1.0)))


def partial_cosine(t: float) -> float:
    """Return cos(7 pi t / 16), which falls from 1 to 0.2 (Sohn et al., 2020)."""
    return math.cos(7 * math.pi * t / 16)


def grow_decay(step: int, decay: float, window: float = 1.0) -> float:
    """Return how much of a weight average is kept at an update.

    The average covers a share `window` of the updates so far, until it covers 1 / (1 - decay) of them.
    """
    return min(1 - 1 / (window * step + 2), decay)


class Rates(NamedTuple):
    """The optimiser's settings at one update."""

    learning_rate: float
    beta1: float
    scale: float
    """The learning rate as a share of its largest value."""

    def rescale(self, learning_rate: float | None) -> "Rates":
        """Return the rates for another largest learning rate; None keeps them."""
        return self if learning_rate is None else self._replace(learning_rate=learning_rate * self.scale)


class Optimisation(Value):
    """How f, g and d are updated. Lengths are shares of the whole training."""

    optimizer: Literal["adam", "sgd"] = Field("adam", description="of f and g")
    learning_rate: float = Field(5e-4, gt=0, description="of f and g, at its largest; see optimisation.schedule")
    schedule: Literal["linear-tail", "ramps", "cosine", "partial-cosine"] = Field(
        "linear-tail", description="the alignment strategy's; Laine's and Tarvainen's; Shake-Shake's; FixMatch's"
    )
    tail: float = Field(20 / 60, ge=0, le=1, description="linear-tail: the last part, in which the rate falls")
    stairs: int = Field(40, ge=1, description="linear-tail: in how many equal steps it falls")
    ramp_up: float = Field(40 / 150, ge=0, le=1, description="ramps: the part in which the rate rises")
    ramp_down: float = Field(25 / 150, ge=0, le=1, description="ramps: the part in which it falls")
    cosine_end: float = Field(350 / 300, gt=0, description="cosine: where the rate would reach zero")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's first moment, until the rate begins to fall")
    beta1_end: float = Field(
        0.5, ge=0, lt=1, description="Adam's first moment once the rate falls, or what it falls to"
    )
    beta2: float = Field(0.999, ge=0, lt=1, description="Adam's second moment")
    momentum: float = Field(0.9, ge=0, lt=1, description="Nesterov momentum of SGD")
    weight_decay: float = Field(0.0, ge=0, description="of f and g")
    weight_decay_on: Literal["all", "kernels"] = Field(
        "all", description="decay all weights, or only those of convolutions and linear layers"
    )

    def compute_rates(self, t: float) -> Rates:
        """Return the learning rate and beta1 at progress t."""
        if self.schedule == "cosine":
            factor, beta1 = cosine(t, self.cosine_end), self.beta1
        elif self.schedule == "partial-cosine":
            factor, beta1 = partial_cosine(t), self.beta1
        elif self.schedule == "ramps":
            down = ramp_down(t, self.ramp_down)
            factor = ramp_up(t, self.ramp_up) * down
            beta1 = down * self.beta1 + (1 - down) * self.beta1_end
        else:
            factor = linear_tail(t, self.tail, self.stairs)
            beta1 = self.beta1 if t < 1 - self.tail else self.beta1_end
        learning_rate = factor * self.learning_rate
        return Rates(learning_rate, beta1, learning_rate / self.learning_rate)
