"""A trained model as an ONNX file, which runs without this package and without torch."""

import contextlib
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from afda import __version__
from afda.disk import check_writable, write_whole
from afda.errors import UserError
from afda.inference import Model, load_model


def exported(run: Path, out: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the model of a run as ONNX, and say what it takes and gives."""
    if out.is_dir():
        raise UserError(f"{out} is a folder; name a file such as {out / 'model.onnx'}.")
    if out.suffix.lower() != ".onnx":
        raise UserError(f"{out} is to be an ONNX file; give it a name that ends in .onnx.")
    check_writable(out.parent)
    if out.exists() and not overwrite:
        raise UserError(f"{out} already exists; choose another -o, or add --overwrite.")
    model, shape = load_model(run)
    content, about = as_onnx(model, shape)
    write_whole(out, content)
    return {"run": str(run), "file": str(out), "bytes": len(content), **about}


def as_onnx(model: Model, shape: tuple[int, ...]) -> tuple[bytes, dict[str, Any]]:
    """The content of the ONNX file, and what its metadata say.

    It takes any number of raw images, uint8 `(n, c, h, w)`, or of float32 vectors `(n, d)`: normalisation is inside.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise UserError("Exporting needs onnx and onnxscript: pip install -c constraints.txt 'afda[onnx]'.") from None
    sizes = ", ".join(map(str, shape))
    if len(shape) == 3:
        name, dtype = "images", torch.uint8
        takes = f"images: uint8 (n, {sizes}), channels first, from 0 to 255"
    else:
        name, dtype = "vectors", torch.float32
        takes = f"vectors: float32 (n, {sizes})"
    with quiet():
        program = torch.onnx.export(
            Exported(model).eval(),
            (torch.zeros(2, *shape, dtype=dtype),),
            dynamo=True,
            input_names=[name],
            output_names=["probabilities", "features"],
            dynamic_shapes=({0: torch.export.Dim("n")},),
            verbose=False,
        )
    assert program is not None
    classes = list(model.classes)
    about = {"afda_version": __version__, "input": takes, "output": "probabilities of the classes, in order; features"}
    if len(shape) == 3:
        about["resizing"] = (
            "turned as its EXIF says, transparency on white, then "
            f"PIL.ImageOps.fit(image, ({shape[2]}, {shape[1]}), PIL.Image.Resampling.BICUBIC); "
            "afda shrinks much larger images by a whole factor before that, so its pixels differ slightly"
        )
    program.model.metadata_props.update({**about, "classes": json.dumps(classes)})
    return program.model_proto.SerializeToString(), {**about, "classes": classes}


class Exported(nn.Module):
    """From raw images to probabilities and features."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output = self.model(x)
        return self.model.probabilities(output.logits), output.features


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Torch's exporter warns of its own affairs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
