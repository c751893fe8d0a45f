"""Mistakes of users: one sentence on standard error, exit code 2, and nothing is written."""

import os

import numpy as np
import pytest
from command import FAST, read_error, run_command

from afda.runs.directory import Run


def bad(afda, tmp_path, *arguments):
    """The complaint about these arguments of `train`; nothing may be left behind."""
    message = read_error(*afda("train", *arguments, "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    return message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digist"], "no folder or data set called 'digist'; did you mean 'digits'?"),
        (["nothing.npz"], "There is no file or folder nothing.npz"),
        (["digits", "--method", "vatt"], "no method called 'vatt'; did you mean 'vat'?"),
        (["digits", "--method", "vat+entorpy"], "no method called 'entorpy'; did you mean 'entropy'?"),
        (["digits", "--method", "vat+vat"], "a method is named twice"),
        (["digits", "--net", "conv_large"], "no net called 'conv_large'; did you mean 'conv-large'?"),
        (["digits", "--align", "adversary"], "no alignment called 'adversary'; did you mean 'adversarial'?"),
        (["digits", "--recipe", "digit-demo"], "no recipe called 'digit-demo'; did you mean 'digits-demo'?"),
        (["digits", "--recipe", "absent.json"], "There is no recipe absent.json"),
        (["digits", "--precision", "float16"], "no precision called 'float16'; did you mean 'bfloat16'?"),
        (["digits", "--device", "cpuu"], "The device 'cpuu' cannot be used on this machine; try --device cpu."),
        (["digits", "--device", "meta"], "The device 'meta' cannot be used"),
        (["digits", "--device", "cuda:77"], "The device 'cuda:77' cannot be used"),
        (["digits", "--labels", "5000"], "5000 labels were asked for, but only 1297 training images have one."),
        (["digits", "--labels", "9"], "9 labels cannot cover the 10 classes"),
        (["digits", "--labels", "1297"], "Every training image has a label"),
        (["digits", "--labels", "900", "--validation"], "ask for fewer --labels"),
        (["digits", "--set", "net.widht=2"], "no setting called 'net.widht'; did you mean 'net.width'?"),
        (["digits", "--set", "foo.bar=2"], "no setting called 'foo.bar'; see afda list settings."),
        (["digits", "--set", "net.width=-2"], "The net small is not valid: width"),
        (["digits", "--set", "steps"], "--set takes path=value"),
        (["digits", "--set", "steps=soon"], "steps: "),
        (["digits", "--set", "data=mnist"], "The recipe is for the data set 'mnist', not 'digits'"),
        (["digits", "--seed", "99999999999"], "seed: "),
    ],
)
def test_mistakes(afda, tmp_path, arguments, words):
    assert words in bad(afda, tmp_path, *arguments)


Y = np.array([0, 1, 2, -1] * 5)
X = np.zeros((20, 8, 8), np.uint8) + np.arange(20, dtype=np.uint8)[:, None, None]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": X, "y": Y, "classes": ["a", "b", "c", "d"]}, "class 'd' has no labelled image"),
        ({"x": X, "y": Y + 1, "classes": ["a", "b", "c"]}, "label 3, which is not one of the classes"),
        ({"x": X, "y": Y - 1}, "label -2; give labels from 0 up"),
        ({"x": X, "y": Y, "x_test": X, "y_test": Y + 3}, "y_test has the label"),
        ({"x": X, "y": Y[:5]}, "20 images but 5 labels"),
        ({"x": X, "y": 0 * Y}, "at least 2 classes"),
        ({"x": X}, "has no array 'y'"),
        ({"x": X[:, :1, :1], "y": Y}, "The net small cannot take inputs of shape (1, 1, 1)"),
        ({"x": X[:0], "y": Y[:0]}, "is empty"),
        ({"x": np.full((20, 4), np.nan), "y": Y}, "not finite"),
    ],
)
def test_arrays_that_will_not_do(afda, tmp_path, arrays, words):
    np.savez(tmp_path / "mine.npz", **arrays)
    assert words in bad(afda, tmp_path, tmp_path / "mine.npz")


def test_a_method_that_has_no_unlabelled_images(afda, tmp_path):
    np.savez(tmp_path / "mine.npz", x=X, y=np.arange(20) % 3)
    message = bad(afda, tmp_path, tmp_path / "mine.npz", "--method", "vat+entropy")
    assert "Every training image has a label" in message
    assert afda("train", tmp_path / "mine.npz", "--steps", 2, "--quiet", "--out", tmp_path / "alone")[0] == 0
    assert not Run(tmp_path / "alone").read_recipe().uses_unlabelled


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 and then nothing"])
def test_damaged_arrays(afda, tmp_path, content):
    (tmp_path / "mine.npz").write_bytes(content)
    assert "is not a readable .npz file" in bad(afda, tmp_path, tmp_path / "mine.npz")


@pytest.mark.parametrize("content", [b"", b"nonsense" * 100])
def test_damaged_data_sets(afda, tmp_path, monkeypatch, content):
    monkeypatch.setenv("AFDA_DATA", str(tmp_path / "data"))
    for name in ("svhn", "cifar10"):
        (tmp_path / "data" / name).mkdir(parents=True)
    for name in ("train_32x32.mat", "test_32x32.mat"):
        (tmp_path / "data" / "svhn" / name).write_bytes(content)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (tmp_path / "data" / "cifar10" / name).write_bytes(content)
    assert "train_32x32.mat is not a readable SVHN file" in bad(afda, tmp_path, "svhn")
    assert "data_batch_1.bin is not a readable CIFAR-10 file" in bad(afda, tmp_path, "cifar10")


def test_data_sets_that_are_not_there(afda, tmp_path, monkeypatch):
    monkeypatch.setenv("AFDA_DATA", str(tmp_path / "data"))
    for proxy in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    message = bad(afda, tmp_path, "svhn")
    assert "Put train_32x32.mat and test_32x32.mat into" in message
    assert "could not be downloaded" in message
    assert "Put cifar-10-binary.tar.gz into" in bad(afda, tmp_path, "cifar10")


def test_places_that_will_not_do(afda, few, tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("work")
    for out, extra, words in (
        (tmp_path / "file", [], "is a file; choose another --out"),
        (tmp_path / "file" / "run", [], "cannot be written (Not a directory); choose another --out"),
        (tmp_path / ("x" * 300), [], "cannot be written (File name too long)"),
        (tmp_path / "thesis", [], "is not the directory of a run, so it is left alone"),
        (tmp_path / "thesis", ["--resume"], "There is no run to resume in"),
        (tmp_path / "thesis", ["--overwrite"], "is not the directory of a run, so it is left alone"),
    ):
        assert words in read_error(*afda("train", few, *FAST, "--out", out, *extra))
    assert (tmp_path / "file").read_text() == "text"
    assert [p.name for p in (tmp_path / "thesis").iterdir()] == ["chapter"]


def test_evaluate_mistakes(afda, finished, few, tmp_path):
    out, _, _ = finished
    np.savez(tmp_path / "vectors.npz", x=np.eye(4), y=[0, 1, 0, 1])
    np.savez(tmp_path / "strange.npz", x=X, y=np.where(Y == 0, 11, Y))
    for arguments, words in (
        ([tmp_path], "has no readable model.json; is it the directory of a finished run?"),
        ([tmp_path / "nowhere"], "There is no directory"),
        ([out, "digist"], "did you mean 'digits'?"),
        ([out, tmp_path / "vectors.npz"], "The model takes inputs of shape (1, 8, 8), but vectors has (4,)"),
        ([out, tmp_path / "strange.npz"], "The model does not know the class '11' of strange"),
    ):
        assert words in read_error(*afda("evaluate", *arguments))
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("model.json", "environment.json"):
        (broken / name).write_bytes((out / name).read_bytes())
    assert "cannot be read" in read_error(*afda("evaluate", broken))
    (broken / "model.safetensors").write_bytes((out / "model.safetensors").read_bytes()[:-9])
    assert "cannot be read" in read_error(*afda("evaluate", broken))


def test_list_mistake(afda):
    assert "did you mean 'methods'?" in read_error(*afda("list", "method"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["train"],
        ["train", "digits", "--steps", "x"],
        ["train", "digits", "--steps", "0"],
        ["train", "digits", "--threads", "0"],
        ["train", "digits", "--nonsense"],
        ["train", "digits", "--out"],
        ["evaluate"],
        ["demo", "--labels", "3"],
        ["nonsense"],
    ],
)
def test_usage(afda, arguments):
    code, out, err = afda(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert err.endswith(" --help.\n")
    assert err.count("\n") == 1


def test_a_mistake_in_a_process_of_its_own(tmp_path):
    done = run_command("train", "digits", "--labels", "3", cwd=tmp_path)
    assert "ask for at least one per class" in read_error(done.returncode, done.stdout, done.stderr)
    assert os.listdir(tmp_path) == []


def test_a_run_that_fails_says_so_with_1(afda, few, tmp_path):
    diverging = ["--method", "supervised", "--align", "none", "--set", "optimisation.learning_rate=1e36"]
    out = tmp_path / "run"
    light = ["--labels", "20", "--net", "mlp", "--steps", "5"]
    code, text, err = afda("train", few, *light, *diverging, "--quiet", "--out", out)
    assert (code, text) == (1, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert Run(out).read_checkpoint()["step"] == 0
