"""A trained model against labelled images."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from afda import results
from afda.data import load, load_again
from afda.errors import UserError
from afda.inference import load_model, outputs
from afda.runs import Run
from afda.runtime import Runtime


def evaluated(path: Path, name: str | None, runtime: Runtime) -> dict[str, Any]:
    """The errors of a run's model on its own test set, or on the data set with this name: its test set if it has one,
    else its labelled images."""
    model, shape = load_model(path)
    about = Run(path).read_json("environment.json")
    if name is not None:
        data = load(name, shape=shape, to_train_on=False)
    else:
        data = load_again(about)
        if data.files != about.get("data"):
            raise UserError(f"The data of {path} have changed since it was trained, so its test set may have too.")
        if data.test is None:
            raise UserError(f"The data of {path} have no test set; name labelled data to evaluate on.")
    same = set(data.files.values()) & set(about.get("data", {}).values()) or data.source == about.get("source")
    if data.test is None and same:
        raise UserError(f"{data.name} is what the model was trained on; name other labelled data to evaluate on.")
    images = data.test if data.test is not None else data.train[data.train.y >= 0]
    if not len(images):
        raise UserError(f"{data.name} has no labelled images to evaluate on.")
    if images.shape != shape:
        raise UserError(f"The model takes inputs of shape {shape}, but {data.name} has {images.shape}.")
    if strangers := sorted(set(data.classes) - set(model.classes)):
        raise UserError(
            f"The model does not know the class {strangers[0]!r} of {data.name}; it knows {', '.join(model.classes)}."
        )
    to_model = torch.tensor([model.classes.index(name) for name in data.classes])
    if runtime.precision == "auto":  # as it was tested, where this machine can
        as_before = replace(runtime, precision=about.get("precision") or "auto")
        runtime = runtime if as_before.emulates else as_before
    runtime.place(model)
    found = results.errors(outputs(model, images.x, runtime).logits, to_model[images.y], model.classes)
    return {"run": str(path), "data": data.name, "images": len(images), **found}
