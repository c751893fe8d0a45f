import json
import logging
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from afda import __version__, train
from afda.data.arrays import from_arrays
from afda.data.images import Preparation
from afda.data.normalise import fit_normaliser
from afda.nets import BatchNorm
from afda.recipes import recipe
from afda.registry import create, list_names
from afda.runs.export import convert_to_onnx
from afda.runs.model import Model, load_model

CLASSES = ("cat", 'a "dog"', "élan", "<b>")
NETS = {
    "conv-large": ({"width": 1 / 16, "top_norm": True}, (3, 12, 12), "zca"),
    "small": ({"width": 0.25}, (1, 8, 8), "centre"),
    "mlp": ({"hidden": 16, "features": 8}, (5,), "standard"),
    "wrn-28-2": ({"width": 0.125}, (3, 12, 12), "standard"),
    "shake-shake": ({"width": 1 / 24, "heads": 2}, (4, 12, 12), "centre"),
}


def inputs(n, shape, seed=0):
    random = torch.Generator().manual_seed(seed)
    if len(shape) == 1:
        return 3 * torch.randn(n, *shape, generator=random) + 5
    return torch.randint(0, 256, (n, *shape), generator=random, dtype=torch.uint8)


def session(content):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def compare(model, running, shape):
    """Assert that the outputs of the file are those of the model, for batches of one and of several."""
    (taken,) = running.get_inputs()
    assert [output.name for output in running.get_outputs()] == ["probabilities", "features"]
    for n in (1, 7):
        x = inputs(n, shape, seed=n)
        with torch.no_grad():
            expected = model(x)
        probabilities, features = running.run(None, {taken.name: x.numpy()})
        torch.testing.assert_close(
            torch.from_numpy(probabilities), (expected.logits / model.temperature).softmax(dim=1), rtol=0, atol=1e-4
        )
        torch.testing.assert_close(torch.from_numpy(features), expected.features, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", list_names("nets"))
def test_the_same_outputs_in_onnxruntime(name):
    fields, shape, normalise = NETS.get(name, ({}, (3, 12, 12), "centre"))
    torch.manual_seed(0)
    classifier = create("nets", {"name": name, **fields}).build(shape, len(CLASSES))
    for module in classifier.modules():
        if isinstance(module, BatchNorm):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 1.5)
    normaliser = fit_normaliser(Preparation(normalise=normalise), inputs(600, shape))
    model = Model(normaliser, classifier, CLASSES).eval()
    model.temperature = 1.7

    content, metadata = convert_to_onnx(model, shape)
    onnx.checker.check_model(onnx.load_from_string(content))
    running = session(content)
    compare(model, running, shape)
    (taken,) = running.get_inputs()
    vectors = len(shape) == 1
    assert (taken.name, taken.type) == (("vectors", "tensor(float)") if vectors else ("images", "tensor(uint8)"))
    assert isinstance(taken.shape[0], str)
    assert taken.shape[1:] == list(shape)
    stored = running.get_modelmeta().custom_metadata_map
    assert tuple(json.loads(stored["classes"])) == CLASSES
    assert stored["afda_version"] == __version__
    assert stored["input"] == metadata.input
    assert str(shape)[1:-1].rstrip(",") in stored["input"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, digits):
    """A finished run on a few digits."""
    y = np.where(np.arange(100) < 60, digits.train.y[:100].numpy(), -1)
    data = from_arrays(digits.train.x[:100, 0].numpy(), y)
    settings = ["steps=3", "net=mlp", "net.hidden=16", "net.features=8", "align.hidden=8"]
    out = tmp_path_factory.mktemp("runs") / "run"
    return train(recipe("own-images", data).with_settings(settings), data, out).path


def test_the_command(run, tmp_path):
    out = tmp_path / "[b]mine.onnx"
    command = [sys.executable, "-m", "afda", "export", run, "-o", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"Wrote {out}. Input: images: uint8 (n, 1, 8, 8), channels first, from 0 to 255.\n"
    model, shape = load_model(run)
    compare(model, session(out.read_bytes()), shape)
    assert list(tmp_path.iterdir()) == [out]


@pytest.fixture(scope="module")
def run_on_vectors(tmp_path_factory, digits):
    """A finished run on vectors, one of which has an absurd value."""
    y = np.where(np.arange(200) < 60, digits.train.y[:200].numpy(), -1)
    x = digits.train.x[:200].flatten(1).float().numpy()
    x[199, 3] = 1e6
    data = from_arrays(x, y)
    out = tmp_path_factory.mktemp("runs") / "vectors"
    return train(recipe("own-vectors", data).with_settings(["steps=100"]), data, out).path


@pytest.mark.parametrize("absurd", [1e30, -1e30, 3e38, 1e4])
def test_an_absurd_input_does_not_dominate(run_on_vectors, tmp_path, afda, digits, absurd):
    """An input far from the training range counts as one of ten standard deviations, here and in the ONNX file."""
    assert json.loads((run_on_vectors / "model.json").read_text())["clip"] == 10
    model, _ = load_model(run_on_vectors)
    x = digits.train.x[200:220].flatten(1).float()
    moved = x.clone()
    moved[:, 20] = absurd
    limit = x.clone()
    limit[:, 20] = model.normaliser.mean[20] + np.sign(absurd) * 10 / model.normaliser.scale[20]
    with torch.no_grad():
        found, expected = (model.probabilities(model(part).logits) for part in (moved, limit))
    torch.testing.assert_close(found, expected)
    assert found.isfinite().all()
    assert len(found.argmax(dim=1).unique()) > 2
    code, _, err = afda("export", run_on_vectors, "-o", tmp_path / "model.onnx")
    assert code == 0, err
    exported = session((tmp_path / "model.onnx").read_bytes()).run(None, {"vectors": moved.numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(exported), found, rtol=0, atol=1e-4)


def test_json_and_existing_files(afda, run, tmp_path):
    out = tmp_path / "model.onnx"
    out.write_text("work")
    code, text, err = afda("export", run, "-o", out)
    assert (code, text, err) == (2, "", f"Error: {out} already exists; choose another -o, or add --overwrite.\n")
    assert out.read_text() == "work"
    code, text, err = afda("export", run, "-o", out, "--overwrite", "--json")
    assert (code, err) == (0, "")
    printed = json.loads(text)
    assert printed.pop("bytes") == out.stat().st_size
    classes = [str(k) for k in range(10)]
    about = {"afda_version": __version__, "classes": classes} | {k: printed[k] for k in ("input", "output", "resizing")}
    assert printed == {"run": str(run), "file": str(out), **about}
    assert logging.root.manager.disable == logging.NOTSET


def test_mistakes(afda, run, tmp_path, monkeypatch):
    for arguments, words in (
        ([tmp_path / "nowhere", "-o", tmp_path / "a.onnx"], "There is no directory"),
        ([run, "-o", tmp_path / "a.onx"], "give it a name that ends in .onnx"),
        ([run, "-o", tmp_path], f"{tmp_path} is a folder; name a file such as {tmp_path / 'model.onnx'}."),
    ):
        code, out, err = afda("export", *arguments)
        assert (code, out) == (2, "")
        assert words in err
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    code, out, err = afda("export", run, "-o", tmp_path / "a.onnx")
    assert (code, out) == (2, "")
    assert err == "Error: Exporting needs onnx and onnxscript: pip install -c constraints.txt 'afda[onnx]'.\n"
    assert list(tmp_path.iterdir()) == []
