"""The semi-supervised methods, one file each, and their contract; a new file is a new method."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from afda.data.batch import Batch, View
from afda.data.shares import ClassShares
from afda.nets import Networks, Output
from afda.registry import Metric, Plugin
from afda.schedules import Rates

__all__ = ["Batch", "Context", "Loss", "Method", "Metric", "Networks", "Objective", "Output", "Rates", "Step", "View"]


@dataclass(frozen=True)
class Context:
    """What a method or alignment may need to know to build what it owns."""

    shape: tuple[int, ...]
    """The shape of one input: (c, h, w) of an image, (d,) of a vector."""
    classes: int
    features: int
    """The length of the net's feature vectors."""
    images: int
    """The number of training images: the size of a memory that `Batch.i` and `Batch.j` index."""


@dataclass(frozen=True)
class Step:
    """What a method or alignment sees of one update. Outputs are those of the images of all processes."""

    nets: Networks
    batch: Batch
    clean: Output
    """The one pass of x and u that all methods share, labelled rows first."""
    labelled: Output
    """Its labelled rows."""
    unlabelled: Output
    """Its unlabelled rows."""
    t: float
    """Progress in [0, 1)."""
    number: int
    """The number of updates done before this one."""
    rates: Rates
    owned: Any = None
    """What `build` returned."""
    averaged: Any = None
    """The moving average of what `build` returned, if `averages_owned`."""
    shares: ClassShares | None = None
    """Class shares of the labelled and, estimated, of the unlabelled images, if something `uses_shares`."""


@dataclass(frozen=True)
class Loss:
    """Named terms, weighted and summed to the loss, and named metrics, which are only shown."""

    terms: Mapping[str, Tensor] = field(default_factory=dict)
    metrics: Mapping[str, Tensor | float] = field(default_factory=dict)


class Objective(Plugin):
    """What methods and alignments have in common: hyper-parameters as fields, things they own, and a loss."""

    uses_unlabelled: ClassVar[bool] = True
    separate_backward: ClassVar[bool] = False
    """Whether its terms have a gradient, and none through the clean pass. They are then made after that pass has gone
    back, so that the two do not need memory at once; the outputs in its `Step` have no gradient any more."""
    averages_owned: ClassVar[bool] = False
    """Whether a moving average of what it owns is kept along with the teacher."""
    gains_little_from_bfloat16: ClassVar[bool] = False
    """Whether a step on a CPU is hardly faster in it, so that `--precision auto` stays with float32."""

    @property
    def uses_shares(self) -> bool:
        """Whether its loss needs the class shares of the unlabelled images."""
        return False

    def build(self, context: Context) -> nn.Module | None:
        """Return what it owns: networks, and memories or queues as buffers.

        Parameters are trained with those of f and g, unless the module has an attribute `optimizer` of its own, which
        `compete` uses. Everything is placed on the device, checkpointed, resumed and kept equal between processes, and
        it is not part of the exported model.
        """
        return None

    def compete(self, step: Step) -> None:
        """Update what plays against f and g with its own optimiser, before they are updated; outputs are detached."""

    def own_rates(self, rates: Rates) -> Rates:
        """Return the rates of the parameters it owns, from those of f and g."""
        return rates

    def loss(self, step: Step) -> Loss:
        """Return what it adds to the loss of f and g."""
        raise NotImplementedError


class Method(Objective):
    """A semi-supervised method. Methods combine: `vat+entropy` has the terms of both."""

    kind: ClassVar[str] = "methods"

    def teacher_decay(self, step: int) -> float | None:
        """Return how much of the teacher is kept at this update; None if the method has no teacher."""
        return None
