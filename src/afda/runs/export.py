"""Export of a trained model to an ONNX file, which runs without this package and without torch."""

import contextlib
import copy
import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from afda import __version__
from afda.errors import UserError
from afda.machine.files import check_writable, write_atomically
from afda.runs.model import Model, load_model


@dataclass(frozen=True)
class OnnxMetadata:
    """What the metadata of an ONNX file say about its inputs and outputs."""

    afda_version: str
    input: str
    output: str
    resizing: str | None
    """How image files are brought to the input's size; None for vectors."""
    classes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the metadata as plain values, without `resizing` if there is none."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Export:
    """The ONNX file that `export_run` wrote."""

    run: Path
    file: Path
    bytes: int
    metadata: OnnxMetadata

    def to_dict(self) -> dict[str, Any]:
        """Return what `afda export --json` prints."""
        return {"run": str(self.run), "file": str(self.file), "bytes": self.bytes, **self.metadata.to_dict()}


def export_run(run: Path, out: Path, *, overwrite: bool = False) -> Export:
    """Write the model of a run as an ONNX file."""
    if out.is_dir():
        raise UserError(f"{out} is a folder; name a file such as {out / 'model.onnx'}.")
    if out.suffix.lower() != ".onnx":
        raise UserError(f"{out} is not the name of an ONNX file; give it a name that ends in .onnx.")
    check_writable(out.parent)
    if out.exists() and not overwrite:
        raise UserError(f"{out} already exists; choose another -o, or add --overwrite.")
    model, shape = load_model(run)
    content, metadata = convert_to_onnx(model, shape)
    write_atomically(out, content)
    return Export(run, out, len(content), metadata)


def convert_to_onnx(model: Model, shape: tuple[int, ...]) -> tuple[bytes, OnnxMetadata]:
    """Return the content of the ONNX file, and its metadata.

    It takes any number of raw images, uint8 `(n, c, h, w)`, or of float32 vectors `(n, d)`: normalisation is inside.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise UserError("Exporting needs onnx and onnxscript: pip install -c constraints.txt 'afda[onnx]'.") from None
    is_image = len(shape) == 3
    with silence_exporter():
        program = torch.onnx.export(
            OnnxModule(copy.deepcopy(model)).eval(),
            (torch.zeros(2, *shape, dtype=torch.uint8 if is_image else torch.float32),),
            dynamo=True,
            input_names=["images" if is_image else "vectors"],
            output_names=["probabilities", "features"],
            dynamic_shapes=({0: torch.export.Dim("n")},),
            verbose=False,
        )
    assert program is not None
    metadata = describe_model(model, shape)
    program.model.metadata_props.update({**metadata.to_dict(), "classes": json.dumps(metadata.classes)})
    return program.model_proto.SerializeToString(), metadata


def describe_model(model: Model, shape: tuple[int, ...]) -> OnnxMetadata:
    """Return the metadata for a model whose input has this shape."""
    sizes, resizing = ", ".join(map(str, shape)), None
    takes = f"vectors: float32 (n, {sizes})"
    if len(shape) == 3:
        takes = f"images: uint8 (n, {sizes}), channels first, from 0 to 255"
        resizing = (
            "turned as its EXIF says, transparency on white, then "
            f"PIL.ImageOps.fit(image, ({shape[2]}, {shape[1]}), PIL.Image.Resampling.BICUBIC); "
            "afda shrinks much larger images by a whole factor before that, so its pixels differ slightly"
        )
    return OnnxMetadata(
        afda_version=__version__,
        input=takes,
        output="probabilities of the classes, in order; features",
        resizing=resizing,
        classes=list(model.classes),
    )


class OnnxModule(nn.Module):
    """The network that is exported: from raw images to probabilities and features."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output = self.model(x)
        return self.model.probabilities(output.logits), output.features


@contextlib.contextmanager
def silence_exporter() -> Iterator[None]:
    """Hide the warnings of torch's exporter, which are about its own parts."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
