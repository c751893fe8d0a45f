"""The semi-supervised methods, one file each; a new file is a new method."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from afda import processes
from afda.choices import Choice
from afda.classifier import Classifier, Output, Stream, seed_noise

Terms = dict[str, Tensor]
"""Named, weighted terms of the loss. Their sum is minimised; their names are the columns of logs and reports."""


@dataclass(frozen=True)
class Batch:
    """Labelled images x with labels y and unlabelled images u: one augmented view of each.

    Where several processes share a batch, x and u are the images of this one, and y are the labels of all: outputs are
    those of all images, the labelled ones, as many as y, first.
    `key` seeds the noise of the step (`Stream` says which), so that a method can repeat a pass under the very same.
    """

    x: Tensor
    y: Tensor
    u: Tensor
    key: int
    view: Callable[[], tuple[Tensor, Tensor]]
    """Makes another augmented view (x, u) of the same images."""


@dataclass(frozen=True)
class Nets:
    """The student h, its average (the teacher, if the method has one), and whose statistics BatchNorm uses.

    `apart`: labelled and unlabelled images are each normalised by the statistics of their own kind, in passes of their
    own; otherwise by those of the whole batch. Either way an image passes once.
    """

    student: Classifier
    teacher: Classifier | None = None
    apart: bool = True

    def passes(
        self,
        x: Tensor | None,
        u: Tensor | None,
        *,
        key: int | None = None,
        track_labelled: bool = False,
        track_unlabelled: bool = False,
        net: Classifier | None = None,
        exact: bool = False,
    ) -> Output:
        """The output for x and u, joined in this order. A pass moves running statistics only where it says `track`.

        `exact` asks layers that falsify their gradient in training (Shake-Shake) for the true one.
        """
        net = net or self.student
        if self.apart or x is None or u is None:
            outputs = []
            for part, track, stream in ((x, track_labelled, Stream.LABELLED), (u, track_unlabelled, Stream.UNLABELLED)):
                if part is not None:
                    if key is not None:
                        seed_noise(key + stream, part.device)
                    outputs.append(of_all_processes(net(part, track=track, exact=exact)))
            return joined(outputs)
        if key is not None:
            seed_noise(key, x.device)
        both = net(torch.cat([x, u]), track=track_labelled or track_unlabelled, exact=exact)
        if processes.count() == 1:
            return both
        return joined([of_all_processes(both.rows(kind)) for kind in (slice(len(x)), slice(len(x), None))])

    def of_unlabelled(self, x: Tensor, u: Tensor, *, key: int | None = None, **how: Any) -> Output:
        """The output for u, normalised as in the clean pass: by its own statistics, or by those of x and u together."""
        if self.apart:
            return self.passes(None, u, key=key, **how)
        return self.passes(x, u, key=key, **how).rows(slice(processes.count() * len(x), None))


def of_all_processes(output: Output) -> Output:
    """The output for the images of all processes, from that for those of this one."""
    if processes.count() == 1:
        return output
    both = processes.whole(torch.cat([output.logits, output.features], dim=1))
    # Apart from the others, so that a head that is not used has no gradient.
    second = None if output.second is None else processes.whole(output.second)
    logits, features = both.tensor_split([output.logits.shape[1]], dim=1)
    return Output(logits, features, second)


def joined(outputs: list[Output]) -> Output:
    if len(outputs) == 1:
        return outputs[0]
    second = [o.second for o in outputs if o.second is not None]
    return Output(
        torch.cat([o.logits for o in outputs]),
        torch.cat([o.features for o in outputs]),
        torch.cat(second) if second else None,
        outputs[0].logits,
    )


class Method(Choice):
    """A semi-supervised method: hyper-parameters as fields, and what it adds to the supervised loss.

    Methods compose: `vat+entropy` is the sum of the terms of both.
    """

    shelf: ClassVar[str] = "methods"
    uses_unlabelled: ClassVar[bool] = True
    goes_back_alone: ClassVar[bool] = False
    """Whether its terms have a gradient, and none through the clean pass. They are then made after that pass has gone
    back, so that the two do not need memory at once; `clean` has no gradient any more."""

    gains_little_from_bfloat16: ClassVar[bool] = False
    """Whether a step on a CPU is hardly faster in it, so that `--precision auto` stays with float32."""

    def terms(self, nets: Nets, batch: Batch, clean: Output, t: float) -> Terms:
        """The method's terms at progress t. `clean` is the one pass of x and u that everyone shares."""
        raise NotImplementedError

    def teacher_decay(self, step: int) -> float | None:
        """How much of the teacher is kept at this update; None if the method has no teacher."""
        return None
