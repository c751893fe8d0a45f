"""Evaluation of a trained model on labelled images."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from afda.data import load
from afda.data.images import DataSet, Images
from afda.errors import UserError
from afda.machine.runtime import Runtime
from afda.runs.directory import Run
from afda.runs.model import Model, compute_outputs, load_model
from afda.runs.results import compute_scores
from afda.runs.schemas import Environment, Scores


@dataclass(frozen=True)
class Evaluation:
    """The scores of a run's model on the labelled images of a data set."""

    run: Path
    data: str
    """The name of the data set."""
    scores: Scores

    def to_dict(self) -> dict[str, Any]:
        """Return what `afda evaluate --json` prints."""
        scores = self.scores.model_dump(exclude={"error", "misclassified"})
        errors = {"error": self.scores.error, "balanced_error": self.scores.balanced_error}
        return {"run": str(self.run), "data": self.data, "images": self.scores.images, **errors, **scores}


def evaluate_run(path: Path, name: str | None, runtime: Runtime) -> Evaluation:
    """Evaluate the model of a run on its own test set, or on the data set with this name.

    Of that data set it takes the test images, or the labelled images if it has no test set.
    """
    model, shape = load_model(path)
    environment = Run(path).read_environment()
    if name is not None:
        data = load(name, shape=shape, to_train_on=False)
    else:
        data = load_data(environment)
        if data.files != environment.data:
            raise UserError(f"The data of {path} have changed since it was trained, so its test set may have too.")
        if data.test is None:
            raise UserError(f"The data of {path} have no test set; name labelled data to evaluate on.")
    images = select_labelled(data, environment)
    check_fit(model, shape, data, images)
    to_model = torch.tensor([model.classes.index(name) for name in data.classes])
    if runtime.precision == "auto":  # as it was tested, where this machine can
        as_before = replace(runtime, precision=environment.precision or "auto")
        runtime = runtime if as_before.is_emulated else as_before
    runtime.place(model)
    scores = compute_scores(compute_outputs(model, images.x, runtime).logits, to_model[images.y], model.classes)
    return Evaluation(path, data.name, scores)


def load_data(environment: Environment) -> DataSet:
    """Load the data set of a run as its environment.json describes it."""
    return load(
        environment.source,
        shape=environment.input_shape,
        more_labels=environment.more_labels or (),
        group_by=environment.group_by,
        load_rules=environment.load_rules,
    )


def select_labelled(data: DataSet, environment: Environment) -> Images:
    """Return the test images, or else the labelled images unless the run was trained on them."""
    same_files = set(data.files.values()) & set((environment.data or {}).values())
    if data.test is None and (same_files or data.source == environment.source):
        raise UserError(f"{data.name} is what the model was trained on; name other labelled data to evaluate on.")
    images = data.test if data.test is not None else data.train[data.train.y >= 0]
    if not len(images):
        raise UserError(f"{data.name} has no labelled images to evaluate on.")
    return images


def check_fit(model: Model, shape: tuple[int, ...], data: DataSet, images: Images) -> None:
    """Refuse images of another shape than the model takes, and classes that it does not know."""
    if images.shape != shape:
        raise UserError(f"The model takes inputs of shape {shape}, but {data.name} has {images.shape}.")
    if unknown := sorted(set(data.classes) - set(model.classes)):
        raise UserError(
            f"The model does not know the class {unknown[0]!r} of {data.name}; it knows {', '.join(model.classes)}."
        )
