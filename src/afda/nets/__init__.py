"""The networks, one file each, and what they share; a new file is a new net."""

from afda.nets._classifier import (
    BatchNorm,
    Classifier,
    Dropout,
    FalseGradient,
    FirstConv,
    GlobalAverage,
    Networks,
    Normaliser,
    Output,
    Stream,
    View,
    join_outputs,
    seed_noise,
)
from afda.nets._contract import Net, adopt_layers, he_by_fan_out, he_truncated, scale_channels

__all__ = [
    "BatchNorm",
    "Classifier",
    "Dropout",
    "FalseGradient",
    "FirstConv",
    "GlobalAverage",
    "Net",
    "Networks",
    "Normaliser",
    "Output",
    "Stream",
    "View",
    "adopt_layers",
    "he_by_fan_out",
    "he_truncated",
    "join_outputs",
    "scale_channels",
    "seed_noise",
]
