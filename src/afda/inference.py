"""A trained classifier at work: outputs for many images, and the files that hold it."""

import copy
import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from afda.choices import pick
from afda.classifier import BatchNorm, Classifier, FirstConv, Output
from afda.data.normalise import Normaliser
from afda.errors import UserError, in_short
from afda.recipe import Recipe
from afda.runs import Run
from afda.runtime import Runtime


class Model(nn.Module):
    """A classifier with its normalisation: from raw pixels to logits and features.

    `temperature` makes its confidences honest: probabilities are the softmax of the logits divided by it. `familiar`
    tells images that are unlike those it was trained on, if it has been measured.
    """

    def __init__(self, normaliser: Normaliser, classifier: Classifier, classes: tuple[str, ...]) -> None:
        super().__init__()
        self.normaliser = normaliser
        self.classifier = classifier
        self.classes = classes
        self.temperature = 1.0
        self.familiar: Familiar | None = None

    def forward(self, x: Tensor) -> Output:
        return self.classifier(self.normaliser(x))

    def probabilities(self, logits: Tensor) -> Tensor:
        return (logits / self.temperature).softmax(dim=1)


class Familiar(nn.Module):
    """How far features are from those of the training images: the Mahalanobis distance to the nearest class's mean
    (Lee et al., 2018), with the classes as predicted and one covariance for all."""

    means: Tensor
    whitening: Tensor
    limit: Tensor

    def __init__(self, means: Tensor, whitening: Tensor, limit: Tensor) -> None:
        super().__init__()
        self.register_buffer("means", means.float())
        self.register_buffer("whitening", whitening.float())
        self.register_buffer("limit", limit.float())

    @classmethod
    def of(cls, result: Output, share: float = 0.03) -> "Familiar | None":
        """Fitted to the outputs for training images. `limit` is the distance that `share` of them exceed, each measured
        by a fit to others of them, for a fit makes its own images look near; None if there are too few."""
        n, d = result.features.shape
        if n < max(FEWEST, 2 * d):
            return None
        predicted = result.logits.argmax(dim=1)
        distances = []
        for fold in range(FOLDS):
            others = torch.arange(n) % FOLDS != fold
            of_others = cls.fitted(result.features[others], predicted[others], n)
            distances.append(of_others(result.features[~others]))
        made = cls.fitted(result.features, predicted, n)
        made.limit = torch.cat(distances).sort().values[min(n - 1, int((1 - share) * n))]
        return made

    @classmethod
    def fitted(cls, features: Tensor, predicted: Tensor, n: int) -> "Familiar":
        """The fit to these rows, or to some of `n` rows."""
        features = features.double()
        classes, of_row = torch.unique(predicted, return_inverse=True)
        means = torch.stack([features[predicted == k].mean(dim=0) for k in classes])
        centred = features - means[of_row]
        covariance = centred.T @ centred / len(centred)
        # Some of the mean variance keeps directions in which nothing varies, or too few rows say how, from dominating.
        # As much for some of the rows as for all, or their distances could not be compared.
        ridge = (1e-3 + len(covariance) / n) * covariance.diagonal().mean().clamp_min(1e-12)
        values, vectors = torch.linalg.eigh(covariance + ridge * torch.eye(len(covariance), dtype=torch.float64))
        return cls(means, vectors * values.rsqrt(), torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        """The distance of each row."""
        return torch.cdist(features @ self.whitening, self.means @ self.whitening).amin(dim=1)

    def unlike(self, features: Tensor) -> Tensor:
        """Whether each row is further away than nearly all training images."""
        return self(features) > self.limit


FUSE: dict[type, Any] = {
    nn.Conv2d: fuse_conv_bn_eval,
    FirstConv: fuse_conv_bn_eval,
    nn.Linear: fuse_linear_bn_eval,
}
FOLDS = 10
FEWEST = 100
"""Training images that it takes to say what is familiar, or twice the number of features if that is more."""


@torch.inference_mode()
def outputs(model: Model, x: Tensor, runtime: Runtime, batch: int = 500, rows: Tensor | None = None) -> Output:
    """Logits and features of all images, or of those in `rows`, in evaluation mode, as float32 on the CPU."""
    training = model.training
    model.eval()
    ready, runtime = folded(model), runtime.suited(model)
    parts = []
    for images in x.split(batch) if rows is None else (x[r] for r in rows.split(batch)):
        with runtime.autocast():
            result = ready(images.to(runtime.device))
        parts.append((result.logits.float().cpu(), result.features.float().cpu()))
    model.train(training)
    logits, features = (torch.cat(p) for p in zip(*parts, strict=True))
    return Output(logits, features)


def folded(model: Model) -> Model:
    """A copy in which each layer of weights has taken in the BatchNorm that follows it, which costs it nothing in
    evaluation; the model itself if there is nothing to fold."""

    def pairs(of: nn.Module) -> list[tuple[nn.Sequential, int]]:
        chains = [module for module in of.modules() if isinstance(module, nn.Sequential)]
        return [
            (c, i) for c in chains for i in range(len(c) - 1) if type(c[i]) in FUSE and isinstance(c[i + 1], BatchNorm)
        ]

    if not pairs(model):
        return model
    model = copy.deepcopy(model).eval()
    for chain, i in pairs(model):
        chain[i], chain[i + 1] = FUSE[type(chain[i])](chain[i], chain[i + 1]), nn.Identity()
    return model


def model_bytes(model: Model) -> bytes:
    """The model's tensors in the safetensors format."""
    return save({k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()})


def save_model(run: Run, model: Model, recipe: Recipe, shape: tuple[int, ...]) -> None:
    """Write model.safetensors and model.json: all that prediction needs, and nothing that runs code."""
    content = model_bytes(model)
    run.write("model.safetensors", content)
    run.write_json(
        "model.json",
        {
            "format": 1,
            "classes": list(model.classes),
            "shape": list(shape),
            "net": recipe.net.model_dump(),
            "normalise": recipe.preparation.normalise,
            "temperature": model.temperature,
            "sha256": hashlib.sha256(content).hexdigest(),
        },
    )


def load_model(path: Path) -> tuple[Model, tuple[int, ...]]:
    """The model in a run's directory, and the shape of its input."""
    if (path / "recipe.json").exists() and not Run(path).finished:
        raise UserError(f"The run in {path} is not finished; continue it with: afda train DATA --out {path} --resume.")
    card = Run(path).read_json("model.json")
    classes, shape = tuple(card["classes"]), tuple(card["shape"])
    tensors = read_tensors(path / "model.safetensors", card.get("sha256"))
    try:
        # On no device: the card may claim any size, and only what is in the other file takes memory.
        with torch.device("meta"):
            classifier = pick("nets", card["net"]).build(shape, len(classes))
        normaliser = {k.removeprefix("normaliser."): v for k, v in tensors.items() if k.startswith("normaliser.")}
        model = Model(Normaliser.of(normaliser), classifier, classes)
        if "familiar.limit" in tensors:
            model.familiar = Familiar(*(tensors[f"familiar.{k}"] for k in ("means", "whitening", "limit")))
        kinds = {name: held.dtype for name, held in model.state_dict().items()}
        model.load_state_dict({k: v.to(kinds.get(k, v.dtype)) for k, v in tensors.items()}, assign=True)
        model.temperature = float(card.get("temperature", 1.0))
        refuse_misfits(model.eval(), shape)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise UserError(f"The model in {path} cannot be read ({in_short(error)}).") from None
    return model, shape


def read_tensors(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """The tensors in a safetensors file, all of finite numbers; its checksum must be this one, if one is given."""
    try:
        if not path.is_file():
            raise ValueError("there is no such file")
        content = path.read_bytes()
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError("it is damaged, for its checksum is not that in model.json")
        tensors = load(content)
        if not all(bool(torch.isfinite(held.float()).all()) for held in tensors.values()):
            raise ValueError("it has weights that are not finite numbers")
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} cannot be read as a model ({in_short(error)}).") from None
    return tensors


@torch.inference_mode()
def refuse_misfits(model: Model, shape: tuple[int, ...]) -> None:
    """Pass no images at all through the model: that takes neither time nor memory, but every shape must fit."""
    output = model(torch.zeros(0, *shape))
    told = [output.logits] if model.familiar is None else [output.logits, model.familiar.unlike(output.features)]
    if [tuple(t.shape) for t in told] != [(0, len(model.classes)), (0,)][: len(told)]:
        raise ValueError("its parts do not fit together")


def answers(model: Model, logits: Tensor) -> Tensor:
    """The model's probabilities, if its outputs are numbers at all: weights can be finite and still overflow."""
    probabilities = model.probabilities(logits)
    if not torch.isfinite(probabilities).all():
        raise UserError("The model gives no finite numbers for some images, so it cannot be used; train it again.")
    return probabilities
