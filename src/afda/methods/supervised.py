"""Supervised-only: the labelled images and nothing else, the baseline of every comparison."""

from typing import ClassVar

from afda.classifier import Output
from afda.methods import Batch, Method, Nets, Terms


class Supervised(Method):
    """Cross-entropy on the labelled images only."""

    uses_unlabelled: ClassVar[bool] = False

    def terms(self, nets: Nets, batch: Batch, clean: Output, t: float) -> Terms:
        return {}
