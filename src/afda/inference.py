"""A trained classifier at work: outputs for many images, and the files that hold it."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from afda.choices import pick
from afda.classifier import Classifier, Output
from afda.data.normalise import Normaliser
from afda.errors import UserError
from afda.recipe import Recipe
from afda.runs import Run
from afda.runtime import Runtime

SNAPSHOT = "snapshot-"
"""How the names of models kept in mid-training begin."""


class Model(nn.Module):
    """A classifier with its normalisation: from raw pixels to logits and features."""

    def __init__(self, normaliser: Normaliser, classifier: Classifier, classes: tuple[str, ...]) -> None:
        super().__init__()
        self.normaliser = normaliser
        self.classifier = classifier
        self.classes = classes

    def forward(self, x: Tensor) -> Output:
        return self.classifier(self.normaliser(x))


@torch.inference_mode()
def outputs(model: Model, x: Tensor, runtime: Runtime, batch: int = 500) -> Output:
    """Logits and features of all images, in evaluation mode, as float32 on the CPU."""
    training = model.training
    model.eval()
    parts = []
    for images in x.split(batch):
        with runtime.autocast():
            result = model(images.to(runtime.device))
        parts.append((result.logits.float().cpu(), result.features.float().cpu()))
    model.train(training)
    logits, features = (torch.cat(p) for p in zip(*parts, strict=True))
    return Output(logits, features)


def model_bytes(model: Model) -> bytes:
    """The model's tensors in the safetensors format."""
    return save({k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()})


def save_model(run: Run, model: Model, recipe: Recipe, shape: tuple[int, ...]) -> None:
    """Write model.safetensors and model.json: all that prediction needs, and nothing that runs code."""
    run.write("model.safetensors", model_bytes(model))
    run.write_json(
        "model.json",
        {
            "format": 1,
            "classes": list(model.classes),
            "shape": list(shape),
            "net": recipe.net.model_dump(),
            "normalise": recipe.preparation.normalise,
        },
    )


def load_model(path: Path) -> tuple[Model, tuple[int, ...]]:
    """The model in a run's directory, and the shape of its input."""
    card: dict[str, Any] = Run(path).read_json("model.json")
    try:
        classes, shape = tuple(map(str, card["classes"])), tuple(map(int, card["shape"]))
        classifier = pick("nets", card["net"]).build(shape, len(classes))
        tensors = load_file(path / "model.safetensors")
        normaliser = {k.removeprefix("normaliser."): v for k, v in tensors.items() if k.startswith("normaliser.")}
        model = Model(Normaliser.of(normaliser), classifier, classes)
        model.load_state_dict(tensors)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise UserError(f"The model in {path} cannot be read ({str(error).splitlines()[0]}).") from None
    return model.eval(), shape
