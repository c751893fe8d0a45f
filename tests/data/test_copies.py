"""Exact copies in a user's own data are dropped, and the notes say so."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from afda.data import load
from afda.data.arrays import from_arrays
from afda.data.copies import Item, find_copies
from afda.errors import UserError

RANDOM = np.random.default_rng(0)
X = RANDOM.integers(0, 256, (40, 8, 8), dtype=np.uint8)
OTHER = 255 - X


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AFDA_CACHE", str(tmp_path / "cache"))


def items(text):
    """Items from words such as `a:train:cat`: content, part and label; their names are their places."""
    parts = [word.split(":") for word in text.split()]
    return [Item(content, part, label or None, str(i)) for i, (content, part, label) in enumerate(parts)]


@pytest.mark.parametrize(
    ("text", "kept", "unlabelled"),
    [
        ("a:train:x b:train: c:test:x", [0, 1, 2], []),
        ("a:train:x a:test:x", [1], []),
        ("a:train:x a:test:y a:val:x", [1], []),
        ("a:train: a:val:x b:train:", [1, 2], []),
        ("a:train: a:train:x", [1], []),
        ("a:train:x a:train:x a:train:", [0], []),
        ("b:train: a:train: a:train:x a:train:y", [0, 2], [2]),
        ("a:train: a:train:", [0, 1], []),
        ("a:test:x a:test:y a:val:x a:val:x", [0, 1], []),
        ("a:val:x a:val:y", [0, 1], []),
    ],
)
def test_what_stays(text, kept, unlabelled):
    found = find_copies(items(text))
    assert (list(found.kept), sorted(found.unlabelled)) == (kept, unlabelled)
    assert bool(found.notes or found.warnings) == (len(kept) < len(text.split()))


def save(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


def test_copies_in_arrays(tmp_path):
    x = X.copy()
    x[20], x[21], x[1], x[5] = x[0], x[30], x[3], x[2]  # unlabelled, unlabelled, labelled alike, labelled otherwise
    y = np.where(np.arange(40) < 20, np.arange(40) % 2, -1)
    held_out = {"x_test": np.concatenate([OTHER[:2], x[39:]]), "y_test": [0, 1, 0]}
    data = load(save(tmp_path / "a.npz", x=x, y=y, x_val=x[[6, 38, 39]], y_val=[0, 0, 0], **held_out))
    assert sorted(set(range(40)) - set(data.train.rows)) == [3, 5, 6, 20, 38, 39]
    assert (data.train.x[:, 0].numpy() == x[data.train.rows]).all()
    expected = y.copy()
    expected[2] = -1
    assert (data.train.y.numpy() == expected[data.train.rows]).all()
    assert data.val.rows.tolist() == [0, 1]
    assert len(data.test) == 3
    assert sorted(data.notes) == [
        "1 labelled image is an exact copy of a validation image and was dropped: train image 6 = validation image 0.",
        "1 labelled image is an exact copy of another labelled image and was dropped: train image 3 = train image 1.",
        "1 unlabelled image is an exact copy of a labelled image and was dropped: train image 20 = train image 0.",
        "1 unlabelled image is an exact copy of a test image and was dropped: train image 39 = test image 2.",
        "1 unlabelled image is an exact copy of a validation image and was dropped: train image 38 = validation image "
        "1.",
        "1 validation image is an exact copy of a test image and was dropped: validation image 2 = test image 2.",
    ]
    assert data.warnings == (
        "1 image occurs with contradicting labels, such as train image 2 ('0') = train image 5 ('1'); each of them is "
        "used once, without a label. Correct the labels, or delete the wrong copies.",
    )
    assert len(load(str(tmp_path / "a.npz"), to_train_on=False).train) == 40


def test_dropping_changes_the_fingerprint_of_arrays(tmp_path):
    y = [0, 1] * 20
    alone = load(save(tmp_path / "a.npz", x=X, y=y, x_test=OTHER, y_test=y))
    assert list(alone.files) == ["a.npz"]
    assert (alone.train.rows, alone.notes, alone.copies) == (None, (), ())
    dropped = load(save(tmp_path / "b.npz", x=X, y=y, x_test=X[:4], y_test=y[:4]))
    assert list(dropped.files) == ["b.npz", "without copies"]


def test_copies_are_dropped_before_images_are_held_out(tmp_path):
    x = RANDOM.integers(0, 256, (200, 8, 8), dtype=np.uint8)
    x[100:150] = x[:50]
    data = load(save(tmp_path / "a.npz", x=x, y=[0, 1] * 100))
    assert (len(data.train), len(data.val), len(data.test)) == (92, 22, 36)
    parts = [{image.numpy().tobytes() for image in part.x} for part in (data.train, data.val, data.test)]
    assert len(set.union(*parts)) == 150


def test_a_class_of_copies_alone_is_refused(tmp_path):
    held_out = {"x_test": X[:1], "y_test": [0]}
    with pytest.raises(UserError, match=r"class '0' are .*, such as train image 0 = test image 0; label"):
        load(save(tmp_path / "a.npz", x=X, y=[0, *[1] * 19, *[-1] * 20], **held_out))
    with pytest.raises(UserError, match=r"class '0' are .*, such as train image 0 = train image 1; label"):
        load(save(tmp_path / "b.npz", x=X[[0, 0, 1, 2]], y=[0, 1, 1, 1]))
    with pytest.raises(UserError, match="class '0' are exact copies"):
        load(save(tmp_path / "c.npz", x=X, y=[0, 1] * 20, x_test=X, y_test=[0, 1] * 20))


def test_arrays_in_memory_keep_their_copies():
    data = from_arrays(X[[0, 0, 1, 1]], [0, 0, 1, -1], x_test=X[:1], y_test=[0])
    assert len(data.train) == 4


def test_vectors(tmp_path):
    x = RANDOM.normal(size=(40, 3))
    x[1, 0], x[39, 0] = 0.0, -0.0
    x[39, 1:] = x[1, 1:]
    y = np.where(np.arange(40) < 20, np.arange(40) % 2, -1)
    assert load(save(tmp_path / "a.npz", x=x, y=y)).train.rows.tolist() == list(range(39))


def test_vectors_of_few_values_are_not_taken_for_copies(tmp_path):
    x = RANDOM.integers(0, 2, (60, 3))
    data = load(save(tmp_path / "a.npz", x=x, y=[0, 1, -1] * 20, x_test=x[:3], y_test=[0, 1, 1]))
    assert len(data.train) == 60
    assert any("equal ones are not taken for copies" in note for note in data.notes)
    assert not any(same.dropped for same in data.copies)


def image(path, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (12, 12), dtype=np.uint8)).save(path)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "pets"
    for i in range(4):
        image(root / "cat" / f"{i}.png", i)
        image(root / "dog" / f"{i}.png", 10 + i)
        image(root / "test" / ("cat" if i % 2 else "dog") / f"{i}.png", 20 + i)
    for i in range(6):
        image(root / "unlabeled" / f"{i}.png", 30 + i)
    return root


def test_copies_in_a_folder(folder):
    before = load(str(folder))
    assert list(before.files) == ["pets"]
    shutil.copy(folder / "cat" / "0.png", folder / "unlabeled" / "copy.png")
    shutil.copy(folder / "cat" / "1.png", folder / "dog" / "copy.png")
    shutil.copy(folder / "test" / "cat" / "1.png", folder / "cat" / "test copy.png")
    data = load(str(folder))
    assert set(before.train.paths) == set(data.train.paths)
    assert data.train.y[data.train.paths.index("cat/1.png")] == -1
    assert (data.train.y >= 0).sum() == 7
    for row, path in enumerate(data.train.paths):
        with Image.open(folder / path) as expected:
            assert (data.train.x[row, 0].numpy() == np.asarray(expected)).all()
    assert data.notes[-2:] == (
        "1 labelled image is an exact copy of a test image and was dropped: cat/test copy.png = test/cat/1.png.",
        "1 unlabelled image is an exact copy of a labelled image and was dropped: unlabeled/copy.png = cat/0.png.",
    )
    assert "cat/1.png ('cat') = dog/copy.png ('dog')" in data.warnings[0]
    assert list(data.files) == ["pets", "without copies"]
    assert data.files["pets"] != before.files["pets"]
    assert load(str(folder)).files == data.files
    whole = load(str(folder), to_train_on=False)
    assert "unlabeled/copy.png" in whole.train.paths


def test_images_without_a_label_beside_the_test_images_are_not_in_the_test_set(folder):
    shutil.copy(folder / "cat" / "0.png", folder / "test" / "loose.png")
    assert "cat/0.png" in load(str(folder)).train.paths


def test_copies_that_get_a_label_later(folder, tmp_path):
    shutil.copy(folder / "unlabeled" / "0.png", folder / "unlabeled" / "copy.png")
    assert "unlabeled/copy.png" in load(str(folder)).train.paths
    table = tmp_path / "next.csv"
    table.write_text("path,label\nunlabeled/0.png,dog\n")
    data = load(str(folder), more_labels=[str(table)])
    assert "unlabeled/copy.png" not in data.train.paths
    assert data.train.y[data.train.paths.index("unlabeled/0.png")] == 1


def test_labels_of_dropped_copies(folder, tmp_path):
    shutil.copy(folder / "cat" / "0.png", folder / "dog" / "copy.png")
    shutil.copy(folder / "test" / "cat" / "1.png", folder / "unlabeled" / "test copy.png")
    table = tmp_path / "next.csv"
    table.write_text("path,label\ndog/copy.png,dog\nunlabeled/test copy.png,cat\n")
    data = load(str(folder), more_labels=[str(table)])
    assert data.train.y[data.train.paths.index("cat/0.png")] == 1
    assert "1 label in next.csv is of a copy of a test or validation image and was not used." in data.notes


def test_labels_of_dropped_copies_in_arrays(tmp_path):
    x, table = X.copy(), tmp_path / "next.csv"
    x[2] = x[1]
    table.write_text("row,label\n2,1\n")
    y = np.where(np.arange(40) < 20, np.arange(40) % 2, -1)
    data = load(save(tmp_path / "a.npz", x=x, y=y), more_labels=[str(table)])
    assert data.train.y[data.train.rows.tolist().index(1)] == 1
    assert torch.equal(data.train.y[:4], torch.tensor([0, 1, 1, 0]))
