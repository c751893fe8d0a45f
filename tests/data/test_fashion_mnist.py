"""Fashion-MNIST: IDX files, whole and damaged, and its recipe."""

import gzip
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afda.data import load
from afda.data.sets import fashion_mnist
from afda.data.sets.fashion_mnist import CLASSES, FILES, FashionMNIST
from afda.errors import UserError
from afda.recipes import choose_default_recipe, recipe
from afda.training.run import train


def idx(array):
    """Return an IDX file of bytes."""
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def make_arrays(seed=0):
    random = np.random.default_rng(seed)
    labels = np.arange(60) % 10, np.arange(20) % 10
    images = [random.integers(0, 256, (len(y), 28, 28)) // (1 + y[:, None, None]) for y in labels]
    return dict(zip(FILES, (images[0], labels[0], images[1], labels[1]), strict=True))


def write(folder, **changed):
    """Write the four files below a folder, some of them changed."""
    home = folder / "fashion-mnist"
    home.mkdir(parents=True, exist_ok=True)
    for name, array in make_arrays().items():
        (home / name).write_bytes(gzip.compress(changed.get(name.split("-ubyte")[0].replace("-", "_"), idx(array))))
    return folder


@pytest.fixture(autouse=True)
def _no_package(monkeypatch, tmp_path):
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "usr" / "fashion-mnist")


def test_it_is_read_pixel_by_pixel(tmp_path):
    data, arrays = FashionMNIST().load(write(tmp_path)), make_arrays()
    for part, (images, labels) in ((data.train, FILES[:2]), (data.test, FILES[2:])):
        assert np.array_equal(part.x.numpy()[:, 0], arrays[images])
        assert np.array_equal(part.y.numpy(), arrays[labels])
    assert (data.name, data.train.shape, data.balanced) == ("fashion-mnist", (1, 28, 28), True)
    assert set(data.files) == set(FILES)


def test_the_folder_of_the_debian_package_is_the_second_choice(tmp_path):
    write(tmp_path / "usr")
    assert len(FashionMNIST().load(tmp_path / "empty").train) == 60


def test_missing_files(tmp_path):
    (write(tmp_path) / "fashion-mnist" / FILES[2]).unlink()
    with pytest.raises(UserError, match=r"Put train-images-idx3-ubyte\.gz, .* into .*fashion-mnist, or install"):
        FashionMNIST().load(tmp_path)


WRONG = {
    "empty": b"",
    "labels": idx(np.zeros(60)),
    "another size": idx(np.zeros((60, 27, 28))),
    "none": idx(np.zeros((0, 28, 28))),
    "cut short": idx(np.zeros((60, 28, 28)))[:-1],
    "too long": idx(np.zeros((60, 28, 28))) + b"0",
    "floats": b"\0\0\x0d\x03" + idx(np.zeros((60, 28, 28)))[4:],
    "immense": b"\0\0\x08\x03" + b"\xff" * 12,
    "a header alone": b"\0\0\x08\x03\0\0",
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_wrong_content(tmp_path, content):
    with pytest.raises(UserError, match="not a readable Fashion-MNIST file"):
        FashionMNIST().load(write(tmp_path, train_images_idx3=content))


@pytest.mark.parametrize("labels", [np.zeros(59), np.full(60, len(CLASSES))], ids=["fewer", "of an eleventh class"])
def test_labels_of_other_images(tmp_path, labels):
    with pytest.raises(UserError, match="do not belong together"):
        FashionMNIST().load(write(tmp_path, train_labels_idx1=idx(labels)))


def test_a_file_that_unpacks_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "LARGEST", 1000)
    with pytest.raises(UserError, match="not a readable"):
        FashionMNIST().load(write(tmp_path))


@given(edits=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_damaged_files_are_refused_or_harmless(tmp_path_factory, edits):
    folder = write(tmp_path_factory.mktemp("damaged"))
    path = folder / "fashion-mnist" / FILES[1]
    content = bytearray(path.read_bytes())
    for where, byte in edits:
        content[where % len(content)] = byte
    path.write_bytes(content)
    with suppress(UserError):
        assert len(FashionMNIST().load(folder).train) == 60


def test_it_trains_by_its_default_recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("AFDA_DATA", str(write(tmp_path)))
    data = load("fashion-mnist")
    name = choose_default_recipe(data, "cpu")
    assert name == "fashion-mnist-ablation-cpu"
    assert choose_default_recipe(data, "cuda") == "fashion-mnist-ablation"
    made = recipe(name, data)
    assert (made.labels, made.net.width, made.preparation.flip) == (500, 0.125, True)
    result = train(made.with_settings(["labels=20", "steps=2"]), data, tmp_path / "run")
    assert result.path.is_dir()


def test_the_real_files():
    places = [Path(os.environ.get("AFDA_DATA", "/nowhere")), Path("/usr/share/datasets")]
    home = next((place for place in places if (place / "fashion-mnist" / FILES[0]).is_file()), None)
    if home is None:
        pytest.skip("install dataset-fashion-mnist, or set AFDA_DATA to a folder that has fashion-mnist")
    data = FashionMNIST().load(home)
    assert data.train.y.bincount().tolist() == [6000] * 10
    assert data.test.y.bincount().tolist() == [1000] * 10
    assert float(data.train.x.float().mean() / 255) == pytest.approx(0.2860, abs=1e-4)
