"""Images of a group, such as a burst or a video, stay on one side of a split."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image

from afda.data import load
from afda.data.groups import describe_divided, number_groups
from afda.data.hold_out import hold_out
from afda.errors import UserError

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AFDA_CACHE", str(tmp_path / "cache"))


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RANDOM.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)


def groups_of(images):
    return set(images.groups.tolist())


def test_numbers():
    assert number_groups(["b", None, "a", "b", None]).tolist() == [1, 2, 0, 1, 3]
    assert number_groups([None, None]) is None


def test_whole_groups_are_held_out():
    labels = {f"{i}": i % 2 for i in range(200)}
    groups = {f"{i}": str(i // 8) for i in range(240)}
    parts, notes = hold_out(labels, (), groups)
    for part in ("test", "val"):
        chosen = {groups[name] for name, of in parts.items() if of == part}
        assert all(parts.get(name) == part for name, group in groups.items() if group in chosen)
    assert [len([n for n in parts if parts[n] == part and n in labels]) for part in ("test", "val")] == [56, 32]
    assert notes == [
        "there is no test set, so 56 of the 200 labelled images are held out as one, in whole groups.",
        "there is no validation set, so 32 of the 144 labelled images are held out as one, in whole groups.",
    ]


def test_unlabelled_images_leave_with_their_group():
    labels = {f"{i}": i % 2 for i in range(100)}
    groups = {**{name: str(int(name) // 10) for name in labels}, **{f"u{i}": str(i) for i in range(10)}}
    parts, notes = hold_out(labels, ("val",), groups)
    assert len([name for name in parts if name in labels]) == 30
    assert len([name for name in parts if name.startswith("u")]) == 3
    assert notes[0].endswith("in whole groups; 3 unlabelled images of these groups are left out.")


def test_a_group_never_takes_more_than_half_of_a_class():
    labels = {f"{i}": i % 2 for i in range(120)}
    parts, notes = hold_out(labels, (), dict.fromkeys(labels, "one"))
    assert parts == {}
    assert notes == [
        "the groups of images are too large to hold out a test set or a validation set, so all of the labels are used "
        "for training."
    ]


def test_arrays(tmp_path):
    x = RANDOM.integers(0, 256, (240, 8, 8), dtype=np.uint8)
    group = np.arange(240) // 6
    group[:5] = -1
    np.savez(tmp_path / "a.npz", x=x, y=np.where(np.arange(240) < 220, np.arange(240) % 2, -1), group=group)
    data = load(str(tmp_path / "a.npz"))
    parts = [groups_of(part) for part in (data.train, data.val, data.test)]
    assert len(set.union(*parts)) == sum(map(len, parts)) == len(set(group.tolist())) - 1 + 5
    assert (data.train.groups[torch.arange(3)] == data.train[torch.arange(3)].groups).all()
    names = RANDOM.permutation(np.array([f"v{i // 6}" for i in range(240)]))
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(240) % 2, group=names)
    data = load(str(tmp_path / "a.npz"))
    for part in (data.train, data.test):
        assert len({(names[row], k) for row, k in zip(part.rows, part.groups, strict=True)}) == len(groups_of(part))


@pytest.mark.parametrize("group", [np.zeros(3, int), np.zeros(4), np.zeros((4, 2), int)])
def test_groups_that_are_refused(tmp_path, group):
    np.savez(tmp_path / "a.npz", x=np.eye(4), y=[0, 1, 0, 1], group=group)
    with pytest.raises(UserError, match="give a whole number or a name per image"):
        load(str(tmp_path / "a.npz"))


def test_a_folder(tmp_path):
    root = tmp_path / "pets"
    for name in ("cat/a", "cat/b/deep", "dog/a", "unlabeled/b/deep", "dog"):
        for i in range(2):
            image(root / name / f"{i}.png")
    assert load(str(root)).train.groups is None
    data = load(str(root), group_by="folder")
    number = dict(zip(data.train.paths, data.train.groups.tolist(), strict=True))
    assert number["cat/a/0.png"] == number["cat/a/1.png"] == number["dog/a/0.png"]
    assert number["cat/b/deep/0.png"] == number["unlabeled/b/deep/1.png"] != number["cat/a/0.png"]
    assert len(set(number.values())) == 4
    assert data.group_by == "folder"
    assert data.files != load(str(root)).files


def test_a_table_with_groups_on_both_sides(tmp_path):
    rows = [("path", "label", "split", "group")]
    for i in range(8):
        image(tmp_path / f"{i}.png")
        rows.append(
            (f"{i}.png", "ab"[i % 2], "train" if i < 4 else "test", f"video {i % 4}" if i not in (6, 7) else "")
        )
    with open(tmp_path / "t.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    data = load(str(tmp_path / "t.csv"))
    assert data.train.groups.tolist() == [0, 1, 2, 3]
    assert data.test.groups.tolist() == [0, 1, 4, 5]
    assert data.warnings == (
        "2 groups are on several sides of the split, such as 'video 0', among the training and the test images. Errors "
        "that are measured on divided groups are too low; put each group on one side.",
    )


def test_one_group_on_both_sides():
    (warning,) = describe_divided([("v", "train"), ("v", "val"), (None, "test"), ("w", "test")])
    assert warning.startswith("1 group is on several sides of the split: 'v' is among the training and the validation")
    assert describe_divided([("v", "train"), (None, "test"), (None, "train")]) == []


@pytest.mark.parametrize("name", ["digits", "t.csv", "a.npz"])
def test_only_folders_are_grouped_by_folder(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", x=np.eye(4), y=[0, 1, 0, 1])
    (tmp_path / "t.csv").write_text("path,label\n")
    with pytest.raises(UserError, match="--group-by is for folders"):
        load(name, group_by="folder")
