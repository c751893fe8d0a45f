"""Finished runs and models of version 0.1 stay readable."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from afda import UserError, __version__, train
from afda.recipes import recipe

FIXTURE = Path(__file__).parents[1] / "fixtures" / "run-0.1"
RUNS = ("digits", "own")


@pytest.fixture
def old(tmp_path, monkeypatch):
    """The folder of the two runs, copied so that nothing is written to the fixture, as the working directory."""
    folder = shutil.copytree(FIXTURE, tmp_path / "old")
    monkeypatch.chdir(folder)
    return folder


def read_predictions(path):
    """Return names, labels and flags as text, and the probabilities."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    numbers = [key for key in rows[0] if key == "confidence" or key.startswith("p_")]
    return (
        [{key: row[key] for key in row.keys() - set(numbers)} for row in rows],
        np.array([[float(row[key]) for key in numbers] for row in rows]),
    )


def list_files(folder):
    """Return the bytes of every file but the locks."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize("name", RUNS)
def test_evaluate(afda, old, name):
    code, out, err = afda("evaluate", name, "--json")
    assert code == 0, err
    result = json.loads((old / name / "result.json").read_text())
    assert json.loads(out)["error"] == pytest.approx(result["test_error"])
    assert json.loads(out)["confusion"] == result["test"]["confusion"]


@pytest.mark.parametrize("name", RUNS)
def test_predict(afda, old, name):
    out = old / "now.csv"
    code, _, err = afda("predict", name, "images.npz", "-o", out, "--threads", 1, "--precision", "float32")
    assert code == 0, err
    (now, probabilities), (then, expected) = read_predictions(out), read_predictions(old / f"{name}.csv")
    assert now == then
    assert np.abs(probabilities - expected).max() <= 1e-6


@pytest.mark.parametrize("name", RUNS)
def test_report(afda, old, name):
    code, _, err = afda("report", name, "-o", "page.html")
    assert code == 0, err
    assert (old / "page.html").stat().st_size > 10_000


@pytest.mark.parametrize("name", RUNS)
def test_export(afda, old, name):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    code, _, err = afda("export", name, "-o", "model.onnx")
    assert code == 0, err
    session = onnxruntime.InferenceSession("model.onnx")
    (images,) = session.get_inputs()
    x = np.load("images.npz")["x"][:, None].astype(np.uint8)
    probabilities = session.run(None, {images.name: x})[0]
    _, expected = read_predictions(old / f"{name}.csv")
    assert np.abs(probabilities - expected[:, 1:]).max() <= 1e-5


@pytest.mark.parametrize(("name", "data"), [("digits", "digits"), ("own", "arrays.npz")])
def test_resuming_a_finished_run_changes_nothing(afda, old, name, data):
    before = list_files(old)
    code, out, err = afda("train", data, "--out", name, "--resume", "--json")
    assert code == 0, err
    assert json.loads(out)["test_error"] == json.loads((old / name / "result.json").read_text())["test_error"]
    assert list_files(old) == before


def test_a_recipe_of_an_old_run_can_be_trained_again(afda, old):
    arguments = ("--recipe", "digits/recipe.json", "--steps", 2, "--threads", 1, "--out", "new", "--json")
    code, out, err = afda("train", "digits", *arguments)
    assert code == 0, err
    assert json.loads(out)["labels"] == 50


def change_json(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_an_unfinished_run_of_another_version_is_refused(digits, tmp_path):
    begun = recipe("digits-demo", digits, "supervised", "none", 50).with_settings(["steps=4", "net.width=0.1"])

    def stop(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(begun, digits, tmp_path / "run", on_log=stop)
    assert (tmp_path / "run" / "checkpoint.pt").exists()
    change_json(tmp_path / "run" / "environment.json", afda="0.1.0")
    with pytest.raises(UserError, match=f"was started with afda 0.1.0 and this is {__version__}; finish it with that"):
        train(begun, digits, tmp_path / "run", resume=True)
    change_json(tmp_path / "run" / "environment.json", afda=__version__)
    assert train(begun, digits, tmp_path / "run", resume=True).finished


def test_a_model_of_a_newer_format_is_refused(afda, old):
    change_json(old / "digits" / "model.json", format=2)
    code, _, err = afda("predict", "digits", "images.npz", "-o", "now.csv")
    assert code == 2
    assert "was written by a newer version of afda; update afda to read it." in err


def test_the_fixture_names_no_path_of_a_machine():
    for path in FIXTURE.rglob("environment.json"):
        environment = json.loads(path.read_text())
        assert environment["afda"] == "0.1.0"
        assert environment["source"] in ("digits", "arrays.npz")
