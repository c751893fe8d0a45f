"""What a network is here: a plug-in that builds a classifier, and what ordinary torch layers need to take part."""

import math
from typing import ClassVar

from torch import nn

from afda.errors import UserError
from afda.machine.group import Group
from afda.nets._classifier import BatchNorm, Classifier, Normaliser
from afda.registry import Plugin

TORCH_BATCHNORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class Net(Plugin):
    """A network by name. Its fields are its sizes."""

    kind: ClassVar[str] = "nets"

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        """Return a classifier of inputs of this shape, initialised from torch's global random state.

        It must not read files: it is also called to count weights and to make room for those of a saved model.
        """
        raise NotImplementedError

    def load_pretrained(self, classifier: Classifier) -> None:
        """Load pretrained weights into a classifier that was just built; called once per training."""

    def make_normaliser(self, shape: tuple[int, ...]) -> Normaliser | None:
        """Return the normalisation that pretrained weights expect, or None for the recipe's."""
        return None


def adopt_layers(module: nn.Module, group: Group) -> None:
    """Let a module's layers take part in the training: BatchNorm honours `track`, noise and statistics the group.

    torch's own BatchNorm layers become ours, with the same weights and buffers. Layers whose running statistics cannot
    be controlled are refused.
    """
    for name, layer in module.named_modules():
        if type(layer) in TORCH_BATCHNORMS:
            assert isinstance(layer, nn.modules.batchnorm._BatchNorm)
            if layer.momentum is None or not layer.track_running_stats:
                raise UserError(f"The net's layer {name} has no running average of its statistics; give it a momentum.")
            layer.__class__ = BatchNorm
        elif not isinstance(layer, BatchNorm) and getattr(layer, "running_mean", None) is not None:
            raise UserError(
                f"The net's layer {name} ({type(layer).__name__}) keeps running statistics that every pass would move; "
                "use torch's BatchNorm, or a normalisation without running statistics."
            )
        if group.count > 1 and isinstance(layer, nn.modules.dropout._DropoutNd | nn.RReLU):
            raise UserError(
                f"The net's layer {name} ({type(layer).__name__}) would draw the same noise in every process; use "
                "afda.nets.Dropout, or one process."
            )
        if hasattr(layer, "group") and isinstance(layer.group, Group):
            layer.group = group


def he_truncated(module: nn.Module) -> None:
    """Initialise by He's rule with fan-in from a truncated normal, as in the code of Miyato et al. (2018)."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        std = math.sqrt(1.3 * 2 / module.weight[0].numel())
        nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def he_by_fan_out(module: nn.Module) -> None:
    """Initialise convolutions from N(0, 2 / (k k out)), as is usual for residual networks."""
    if isinstance(module, nn.Conv2d):
        nn.init.normal_(module.weight, std=math.sqrt(2 / (module.kernel_size[0] ** 2 * module.out_channels)))
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def scale_channels(channels: int, width: float) -> int:
    """Return a channel count times a width factor, at least 1."""
    return max(1, round(channels * width))
