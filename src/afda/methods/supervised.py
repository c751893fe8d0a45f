"""Supervised-only: the labelled images and nothing else, the baseline of every comparison."""

from typing import ClassVar

from afda.methods import Loss, Method, Step


class Supervised(Method):
    """Cross-entropy on the labelled images only."""

    uses_unlabelled: ClassVar[bool] = False

    def loss(self, step: Step) -> Loss:
        return Loss()
