import os
import tarfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import loadmat, savemat

from afda.data import matlab
from afda.data.download import Remote
from afda.data.sets import cifar10, svhn
from afda.data.sets.cifar10 import CIFAR10
from afda.data.sets.digits import Digits
from afda.data.sets.svhn import SVHN
from afda.errors import UserError
from afda.registry import list_names

NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for module, name in ((svhn, "TRAIN"), (svhn, "TEST"), (cifar10, "ARCHIVE")):
        published = getattr(module, name)
        monkeypatch.setattr(module, name, Remote(published.name, NOWHERE, published.md5))


@pytest.fixture
def real_data():
    if not os.environ.get("AFDA_DATA"):
        pytest.skip("set AFDA_DATA to the folder with the real data")
    return Path(os.environ["AFDA_DATA"])


edits = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4)


def damage(content, edits):
    content = bytearray(content)
    for where, byte in edits:
        content[where % len(content)] = byte
    return bytes(content)


def test_the_built_in_data_sets():
    assert {"cifar10", "digits", "svhn"} <= set(list_names("data"))
    assert (CIFAR10.name(), Digits.name(), SVHN.name()) == ("cifar10", "digits", "svhn")


# SVHN


def digits_in_colour(n, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "X": rng.integers(0, 256, (32, 32, 3, n), dtype=np.uint8),
        "y": rng.integers(1, 11, (n, 1), dtype=np.uint8),
    }


def write_svhn(folder, train=None, test=None):
    folder.mkdir(parents=True, exist_ok=True)
    savemat(folder / "train_32x32.mat", train or digits_in_colour(6), do_compression=True)
    savemat(folder / "test_32x32.mat", test or digits_in_colour(4, 1), do_compression=True)
    return folder


@pytest.mark.parametrize("place", ["svhn", ""])
def test_svhn_is_read_pixel_by_pixel(tmp_path, place):
    held = digits_in_colour(6)
    held["y"][:3, 0] = 10, 1, 9
    write_svhn(tmp_path / place, held)
    data = SVHN().load(tmp_path)
    assert data.train.x.shape == (6, 3, 32, 32)
    assert data.train.x.dtype == torch.uint8
    assert data.train.x[4, 2, 7, 30] == held["X"][7, 30, 2, 4]
    assert data.train.y[:3].tolist() == [0, 1, 9]
    assert len(data.test) == 4
    assert data.classes == tuple("0123456789")
    assert (data.preparation.normalise, data.preparation.shift, data.preparation.flip) == ("centre", 2, False)
    assert not data.balanced
    assert set(data.files) == {"train_32x32.mat", "test_32x32.mat"}
    assert len(data.notes) == 2


def test_svhn_of_one_image(tmp_path):
    write_svhn(tmp_path, digits_in_colour(1))
    assert len(SVHN().load(tmp_path).train) == 1


GOOD = digits_in_colour(5)


@pytest.mark.parametrize(
    "held",
    [
        {"X": GOOD["X"]},
        {"y": GOOD["y"]},
        {"X": GOOD["X"][..., :4], "y": GOOD["y"]},
        {"X": GOOD["X"][:16], "y": GOOD["y"]},
        {"X": GOOD["X"][..., :0], "y": GOOD["y"][:0]},
        {"X": GOOD["X"].astype(float), "y": GOOD["y"]},
        {"X": GOOD["X"], "y": GOOD["y"] * 0},
        {"X": GOOD["X"], "y": GOOD["y"] * 0 + 11},
        {"X": GOOD["X"], "y": np.full((5, 1), 1.5)},
        {"X": GOOD["X"], "y": np.array(["a"] * 5, dtype=object)},
        {"X": {"field": 1}, "y": GOOD["y"]},
    ],
)
def test_svhn_with_wrong_content(tmp_path, held):
    write_svhn(tmp_path / "svhn", held)
    with pytest.raises(UserError, match=r"train_32x32.mat is not a readable SVHN file: delete it"):
        SVHN().load(tmp_path)


@pytest.mark.parametrize("keep", [0, 1, 100, 128, 140, 0.5, 0.99])
def test_svhn_cut_short(tmp_path, keep):
    path = write_svhn(tmp_path) / "test_32x32.mat"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if keep < 1 else keep])
    with pytest.raises(UserError, match=r"test_32x32.mat is not a readable SVHN file"):
        SVHN().load(tmp_path)


@given(st.binary(max_size=400), st.booleans())
@settings(max_examples=60, deadline=None)
def test_svhn_of_random_bytes(tmp_path_factory, content, with_header):
    folder = write_svhn(tmp_path_factory.mktemp("svhn"))
    path = folder / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:128] * with_header + content)
    with pytest.raises(UserError):
        SVHN().load(folder)


@given(edits, st.booleans())
@settings(max_examples=100, deadline=None)
def test_damaged_svhn_raises_nothing_but_user_errors(tmp_path_factory, edits, compressed):
    path = tmp_path_factory.mktemp("svhn") / "train_32x32.mat"
    savemat(path, digits_in_colour(1), do_compression=compressed)
    content = path.read_bytes()
    # What the arrays are is said before and after the pixels.
    path.write_bytes(content[:120] + damage(content[120:200], edits) + content[200:-64] + damage(content[-64:], edits))
    with suppress(UserError):
        assert svhn._read(path).shape == (3, 32, 32)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("label", [np.uint8, np.int64, float])
def test_svhn_reads_what_scipy_reads(tmp_path, compressed, label):
    held = digits_in_colour(3)
    held = {"note": "text", "nest": {"a": 1}, "X": held["X"], "y": held["y"].astype(label), "cells": np.array([{}, 1])}
    savemat(tmp_path / "a.mat", held, do_compression=compressed)
    images, theirs = svhn._read(tmp_path / "a.mat"), loadmat(tmp_path / "a.mat")
    assert np.array_equal(images.x.numpy(), theirs["X"].transpose(3, 2, 0, 1))
    assert np.array_equal(images.y.numpy(), theirs["y"].ravel() % 10)


def test_svhn_is_not_inflated_without_end(tmp_path, monkeypatch):
    write_svhn(tmp_path)
    monkeypatch.setattr(matlab, "LARGEST", 6 * 3072)
    with pytest.raises(UserError, match="not a readable SVHN file"):
        SVHN().load(tmp_path)


def test_svhn_offline(tmp_path):
    write_svhn(tmp_path / "svhn")
    (tmp_path / "svhn" / "test_32x32.mat").unlink()
    with pytest.raises(UserError, match=r"^Put test_32x32\.mat into .*svhn, or set AFDA_DATA"):
        SVHN().load(tmp_path)


@pytest.mark.svhn
def test_real_svhn(real_data):
    data = SVHN().load(real_data)
    assert data.train.y.bincount().tolist() == [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
    assert len(data.test) == 26_032
    mean = data.train.x.float().mean((0, 2, 3)) / 255
    assert mean.numpy() == pytest.approx([0.4377, 0.4438, 0.4728], abs=1e-4)


# CIFAR-10


@pytest.fixture
def _small(monkeypatch):
    monkeypatch.setattr(cifar10, "ROWS", 3)


def write_cifar10(folder, rows=3):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for name in (*cifar10.TRAIN, cifar10.TEST):
        batch = rng.integers(0, 256, (rows, 3073), dtype=np.uint8)
        batch[:, 0] %= 10
        batch.tofile(folder / name)
    return folder


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("place", ["cifar10/cifar-10-batches-bin", "cifar-10-batches-bin", "cifar10"])
def test_cifar10_is_read_pixel_by_pixel(tmp_path, place):
    folder = write_cifar10(tmp_path / place)
    data = CIFAR10().load(tmp_path)
    batch = (folder / "data_batch_2.bin").read_bytes()
    assert data.train.x.shape == (15, 3, 32, 32)
    assert data.train.x[4, 2, 7, 30] == batch[3073 + 1 + 2 * 1024 + 7 * 32 + 30]
    assert data.train.y[4] == batch[3073]
    assert data.test.y[0] == (folder / "test_batch.bin").read_bytes()[0]
    assert data.classes[3] == "cat"
    assert (data.preparation.normalise, data.preparation.shift, data.preparation.flip) == ("zca", 2, True)
    assert data.balanced
    assert list(data.files) == [*cifar10.TRAIN, cifar10.TEST]
    (note,) = data.notes
    assert "could not be compared" in note


@pytest.mark.usefixtures("_small")
def test_cifar10_is_unpacked_once(tmp_path, monkeypatch):
    write_cifar10(tmp_path / "made" / "cifar-10-batches-bin")
    (tmp_path / "data" / "cifar10").mkdir(parents=True)
    archive = tmp_path / "data" / "cifar10" / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "made", ".")
    first = CIFAR10().load(tmp_path / "data")
    unpacked = tmp_path / "data" / "cifar10" / "cifar-10-batches-bin"
    assert sorted(p.name for p in unpacked.iterdir()) == sorted((*cifar10.TRAIN, cifar10.TEST))
    assert "not the published file" in first.notes[0]
    monkeypatch.setattr(cifar10, "unpack", None)
    assert CIFAR10().load(tmp_path / "data").files == first.files


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    "content", [b"", b"\0", bytes(3 * 3073 - 1), bytes(3 * 3073 + 1), bytes(2 * 3073), b"\n" * 3 * 3073]
)
def test_cifar10_with_wrong_content(tmp_path, content):
    folder = write_cifar10(tmp_path / "cifar10")
    (folder / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(UserError, match=r"data_batch_3.bin is not a readable CIFAR-10 file: delete it"):
        CIFAR10().load(tmp_path)


@pytest.mark.parametrize("rows", [2, 10_001])
def test_cifar10_has_ten_thousand_images_per_file(tmp_path, rows):
    write_cifar10(tmp_path / "cifar10", rows=1)
    (tmp_path / "cifar10" / "data_batch_1.bin").write_bytes(bytes(rows * 3073))
    with pytest.raises(UserError, match="data_batch_1"):
        CIFAR10().load(tmp_path)


@given(st.binary(max_size=100), st.booleans())
@settings(max_examples=40, deadline=None)
def test_cifar10_of_random_bytes(tmp_path_factory, content, right_size):
    path = tmp_path_factory.mktemp("cifar10") / "batch.bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cifar10, "ROWS", 1)
        path.write_bytes(content.ljust(3073, b"\xff") if right_size else content)
        try:
            images = cifar10._read(path)
        except UserError:
            assert not right_size or not content or content[0] > 9
        else:
            assert images.y.tolist() == [content[0]]


def test_cifar10_offline(tmp_path):
    with pytest.raises(UserError, match=r"^Put cifar-10-binary\.tar\.gz into .*cifar10, or set AFDA_DATA"):
        CIFAR10().load(tmp_path)


@pytest.mark.cifar10
def test_real_cifar10(real_data):
    data = CIFAR10().load(real_data)
    assert data.train.y.bincount().tolist() == [5000] * 10
    assert data.test.y.bincount().tolist() == [1000] * 10
    mean = data.train.x.float().mean((0, 2, 3)) / 255
    assert mean.numpy() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)


# Digits


def test_digits(tmp_path):
    data = Digits().load(tmp_path / "unused")
    assert data.train.x.shape == (1297, 1, 8, 8)
    assert data.test.x.shape == (500, 1, 8, 8)
    assert data.train.x.dtype == torch.uint8
    assert (int(data.train.x.min()), int(data.train.x.max())) == (0, 255)
    assert (data.preparation.normalise, data.preparation.shift, data.preparation.flip) == ("centre", 1, False)
    assert data.balanced


def test_digits_are_the_same_every_time_and_everywhere(tmp_path):
    one, two = Digits().load(tmp_path), Digits().load(tmp_path)
    assert torch.equal(one.test.x, two.test.x)
    assert one.files == two.files
    assert one.test.y[:10].tolist() == [2, 8, 2, 6, 6, 7, 1, 9, 8, 5]


def test_digits_hold_every_image_once(tmp_path):
    from sklearn.datasets import load_digits

    data = Digits().load(tmp_path)
    both = torch.cat([data.train.x, data.test.x]).flatten(1).double() * 16 / 255
    assert sorted(both.round().tolist()) == sorted(load_digits().data.tolist())
