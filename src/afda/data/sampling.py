"""Which images make up the batch of a step: a function of (seed, step), with no state to save."""

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=8)
def shuffled(n: int, seed: int, stream: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, stream, epoch]).permutation(n)


def draw(n: int, size: int, step: int, *, seed: int, stream: int) -> np.ndarray:
    """`size` positions out of n. Over the steps every position comes up once before any comes up again."""
    places = np.arange(step * size, (step + 1) * size)
    epochs, offsets = places // n, places % n
    return np.concatenate([shuffled(n, seed, stream, int(e))[offsets[epochs == e]] for e in np.unique(epochs)])
