"""A trained model: its outputs for many images, its out-of-distribution detector and its files."""

import copy
import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from afda.errors import UserError, describe
from afda.machine.group import ALONE
from afda.machine.runtime import Runtime
from afda.nets import BatchNorm, Classifier, FirstConv, Net, Normaliser, Output, adopt_layers
from afda.recipe import Recipe
from afda.registry import create
from afda.runs.directory import Run
from afda.runs.schemas import ModelCard


class Model(nn.Module):
    """A classifier with its normalisation: from raw pixels to logits and features.

    `temperature` calibrates the confidences: probabilities are the softmax of the logits divided by it.
    `out_of_distribution` detects images that are unlike the training images; None if it was not fitted.
    """

    def __init__(self, normaliser: Normaliser, classifier: Classifier, classes: tuple[str, ...]) -> None:
        super().__init__()
        self.normaliser = normaliser
        self.classifier = classifier
        self.classes = classes
        self.temperature = 1.0
        self.out_of_distribution: OutOfDistribution | None = None

    def forward(self, x: Tensor) -> Output:
        output: Output = self.classifier(self.normaliser(x))
        return output

    def probabilities(self, logits: Tensor) -> Tensor:
        return (logits / self.temperature).softmax(dim=1)


class OutOfDistribution(nn.Module):
    """Detector of out-of-distribution images by the Mahalanobis distance of their features to the nearest class mean.

    As in Lee et al. (2018), with the predicted classes and one covariance for all of them.
    """

    means: Tensor
    whitening: Tensor
    limit: Tensor

    def __init__(self, means: Tensor, whitening: Tensor, limit: Tensor) -> None:
        super().__init__()
        self.register_buffer("means", means.float())
        self.register_buffer("whitening", whitening.float())
        self.register_buffer("limit", limit.float())

    @classmethod
    def fit(cls, outputs: Output, share: float = 0.03) -> "OutOfDistribution | None":
        """Fit a detector to the outputs for training images; return None if there are too few of them.

        `limit` is the distance that a `share` of them exceeds. The distances are cross-validated, because images are
        closer to a fit that includes them.
        """
        n, d = outputs.features.shape
        if n < max(FEWEST_TO_FIT, 2 * d):
            return None
        predicted = outputs.logits.argmax(dim=1)
        distances = []
        for fold in range(FOLDS):
            others = torch.arange(n) % FOLDS != fold
            without_fold = cls.fit_rows(outputs.features[others], predicted[others], n)
            distances.append(without_fold(outputs.features[~others]))
        detector = cls.fit_rows(outputs.features, predicted, n)
        detector.limit = torch.cat(distances).sort().values[min(n - 1, int((1 - share) * n))]
        return detector

    @classmethod
    def fit_rows(cls, features: Tensor, predicted: Tensor, n: int) -> "OutOfDistribution":
        """Fit means and covariance to all of `n` rows, or to the part of them that is given."""
        features = features.double()
        classes, class_of_row = torch.unique(predicted, return_inverse=True)
        means = torch.stack([features[predicted == k].mean(dim=0) for k in classes])
        centred = features - means[class_of_row]
        covariance = centred.T @ centred / len(centred)
        # A share of the mean variance keeps directions with no variance, or too few rows to estimate it, from
        # dominating. It is the same for a part of the rows as for all, so that their distances can be compared.
        ridge = (1e-3 + len(covariance) / n) * covariance.diagonal().mean().clamp_min(1e-12)
        values, vectors = torch.linalg.eigh(covariance + ridge * torch.eye(len(covariance), dtype=torch.float64))
        return cls(means, vectors * values.rsqrt(), torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        """Return the distance of each row to the nearest class mean."""
        return torch.cdist(features @ self.whitening, self.means @ self.whitening).amin(dim=1)

    def detect(self, features: Tensor) -> Tensor:
        """Return for each row whether it is farther away than nearly all training images."""
        distances: Tensor = self(features)
        return distances > self.limit


FUSE: dict[type, Any] = {
    nn.Conv2d: fuse_conv_bn_eval,
    FirstConv: fuse_conv_bn_eval,
    nn.Linear: fuse_linear_bn_eval,
}
FOLDS = 10
FEWEST_TO_FIT = 100
"""The fewest training images that the detector is fitted to; twice the number of features if that is more."""
FORMAT = 1
"""The format of model.json and model.safetensors; CHANGELOG.md says when it is raised."""
STORED_PREFIX = {"out_of_distribution.": "familiar."}
"""Names of tensors in model.safetensors, which are those of version 0.1, by the beginning of those in a `Model`."""


@torch.inference_mode()
def compute_outputs(model: Model, x: Tensor, runtime: Runtime, batch: int = 500, rows: Tensor | None = None) -> Output:
    """Return logits and features of all images, or of those in `rows`, in evaluation mode, as float32 on the CPU.

    The model itself stays as it is, also in its mode.
    """
    ready, runtime = fold_batchnorm(model), runtime.choose_precision(model)
    parts = []
    for images in torch.split(x, batch) if rows is None else (x[r] for r in torch.split(rows, batch)):
        with runtime.autocast():
            result = ready(images.to(runtime.device))
        parts.append((result.logits.float().cpu(), result.features.float().cpu()))
    logits, features = (torch.cat(p) for p in zip(*parts, strict=True))
    return Output(logits, features)


def fold_batchnorm(model: Model) -> Model:
    """Return a copy in evaluation mode whose layers of weights include the BatchNorm that follows them.

    It gives the same outputs faster. A model in evaluation mode with nothing to fold is returned itself.
    """

    def find_pairs(net: nn.Module) -> list[tuple[nn.Sequential, int]]:
        chains = [m for m in net.modules() if isinstance(m, nn.Sequential) and type(m).forward is nn.Sequential.forward]
        pairs = [(chain, i) for chain in chains for i in range(len(chain) - 1)]
        return [(c, i) for c, i in pairs if type(c[i]) in FUSE and isinstance(c[i + 1], BatchNorm) and c[i + 1].affine]

    if not (model.training or find_pairs(model)):
        return model
    model = copy.deepcopy(model).eval()
    for chain, i in find_pairs(model):
        chain[i], chain[i + 1] = FUSE[type(chain[i])](chain[i], chain[i + 1]), nn.Identity()
    return model


def serialise_model(model: Model) -> bytes:
    """Return the model's tensors in the safetensors format."""
    tensors = {stored_name(k): v.detach().cpu().contiguous() for k, v in model.state_dict().items()}
    return bytes(save(tensors))


def stored_name(name: str) -> str:
    """Return the name that a tensor of a `Model` has in model.safetensors."""
    for prefix, stored in STORED_PREFIX.items():
        if name.startswith(prefix):
            return stored + name.removeprefix(prefix)
    return name


def save_model(run: Run, model: Model, recipe: Recipe, shape: tuple[int, ...]) -> None:
    """Write model.safetensors and model.json: all that prediction needs, without executable code."""
    content = serialise_model(model)
    run.write("model.safetensors", content)
    card = ModelCard(
        format=FORMAT,
        classes=list(model.classes),
        shape=list(shape),
        net=recipe.net.model_dump(),
        normalise=recipe.preparation.normalise,
        clip=model.normaliser.clip,
        temperature=model.temperature,
        sha256=hashlib.sha256(content).hexdigest(),
    )
    run.write_json("model.json", card)


def load_model(path: Path) -> tuple[Model, tuple[int, ...]]:
    """Return the model in a run's directory, and the shape of its input."""
    if (path / "recipe.json").exists() and not Run(path).finished:
        raise UserError(f"The run in {path} is not finished; continue it with: afda train DATA --out {path} --resume.")
    card = Run(path).read_model_card()
    if card.format > FORMAT:
        raise UserError(f"The model in {path} was written by a newer version of afda; update afda to read it.")
    classes, shape = tuple(card.classes), tuple(card.shape)
    tensors = read_tensors(path / "model.safetensors", card.sha256)
    try:
        classifier = build_for(create("nets", card.net), shape, len(classes), tensors)
        normaliser = {k.removeprefix("normaliser."): v for k, v in tensors.items() if k.startswith("normaliser.")}
        model = Model(Normaliser.from_state(normaliser, card.clip), classifier, classes)
        if "familiar.limit" in tensors:
            detector = (tensors[f"familiar.{k}"] for k in ("means", "whitening", "limit"))
            model.out_of_distribution = OutOfDistribution(*detector)
        expected = {name: (stored_name(name), tensor.dtype) for name, tensor in model.state_dict().items()}
        found = {name: tensors.pop(stored).to(dtype) for name, (stored, dtype) in expected.items() if stored in tensors}
        model.load_state_dict(tensors | found, assign=True)  # which refuses what is missing and what is left
        model.temperature = card.temperature
        check_shapes(model.eval(), shape)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise UserError(f"The model in {path} cannot be read ({describe(error)}).") from None
    return model, shape


def build_for(net: Net, shape: tuple[int, ...], classes: int, tensors: dict[str, Tensor]) -> Classifier:
    """Return a net for these tensors; refuse a larger one, since a model card may claim any size."""
    with torch.device("meta"):
        size = sum(p.numel() for p in net.build(shape, classes).parameters())
    if size > sum(tensor.numel() for tensor in tensors.values()):
        raise ValueError("its net has more weights than the file")
    with torch.random.fork_rng(devices=[]):
        classifier = net.build(shape, classes)
    adopt_layers(classifier, ALONE)
    return classifier


def read_tensors(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file; raise UserError if it is damaged or has numbers that are not finite.

    `sha256` is the checksum that the file must have.
    """
    try:
        if not path.is_file():
            raise ValueError("there is no such file")
        content = path.read_bytes()
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError("it is damaged: its checksum differs from that in model.json")
        tensors = load(content)
        if not all(bool(torch.isfinite(tensor.float()).all()) for tensor in tensors.values()):
            raise ValueError("it has weights that are not finite numbers")
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} cannot be read as a model ({describe(error)}).") from None
    return tensors


@torch.inference_mode()
def check_shapes(model: Model, shape: tuple[int, ...]) -> None:
    """Pass a batch of no images through the model: it needs neither time nor memory, but all shapes must fit."""
    output = model(torch.zeros(0, *shape))
    results = [output.logits]
    if model.out_of_distribution is not None:
        results.append(model.out_of_distribution.detect(output.features))
    if [tuple(t.shape) for t in results] != [(0, len(model.classes)), (0,)][: len(results)]:
        raise ValueError("its parts do not fit together")


def compute_probabilities(model: Model, logits: Tensor) -> Tensor:
    """Return the calibrated probabilities; raise UserError if they are not finite, as when finite weights overflow."""
    probabilities = model.probabilities(logits)
    if not torch.isfinite(probabilities).all():
        raise UserError("The model gives no finite numbers for some images, so it cannot be used; train it again.")
    return probabilities
