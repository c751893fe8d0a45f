import subprocess
import sys

import numpy as np
import pytest

from afda.data import load
from afda.errors import UserError


def test_a_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert load("digits").name == "digits"


def test_a_name_is_looked_for_in_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("AFDA_DATA", str(tmp_path))
    (tmp_path / "train_32x32.mat").touch()
    (tmp_path / "test_32x32.mat").touch()
    with pytest.raises(UserError, match=f"{tmp_path}/train_32x32.mat is not a readable"):
        load("svhn")


@pytest.mark.parametrize("name", ["mine.npz", "MINE.NPZ", "~/mine.npz"])
def test_a_path(monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with open(tmp_path / name.removeprefix("~/"), "wb") as file:
        np.savez(file, x=np.eye(2), y=[0, 1])
    assert load(name).train.shape == (2,)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("svnh", r"There is no folder or data set called 'svnh'; did you mean 'svhn'\?"),
        ("", "or one of: cifar10"),
        ("zzzz", "or one of: cifar10"),
        ("x" * 5000, "There is no folder or data set"),
        ("absent.npz", r"There is no file or folder absent\.npz"),
        ("some/folder", "There is no file or folder some/folder"),
        ("./svhn", "There is no file"),
        ("nul\0.npz", "There is no file"),
        ("folder", "There are no images in folder"),
        ("folder/mine.csv", r"mine\.csv has no column 'path'"),
        ("folder.npz", "There are no images"),
    ],
)
def test_what_is_neither(monkeypatch, tmp_path, name, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "folder" / "mine.csv").touch()
    with pytest.raises(UserError, match=sentence):
        load(name)


def test_importing_is_light():
    check = "import sys, afda.data; sys.exit(any(m in sys.modules for m in ('torch', 'scipy', 'sklearn')))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
