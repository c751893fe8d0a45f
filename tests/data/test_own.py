"""Folders and tables of a person's own images: what is found in them, what is held out, and the cache of pixels."""

import csv
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from afda.data import cache, load
from afda.data.files import list_files
from afda.errors import UserError

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AFDA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def image(path, size=(12, 12), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RANDOM.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).convert(mode).save(path)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "pets"
    for name in ("cat", "dog"):
        for i in range(4):
            image(root / name / f"{i}.png")
    for i in range(6):
        image(root / "unlabeled" / "deep" / f"{i}.png")
    return root


def table(path, rows, columns=("path", "label", "split")):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def test_a_folder(folder):
    data = load(str(folder))
    assert data.classes == ("cat", "dog")
    assert data.train.shape == (1, 12, 12)
    assert (data.train.y == -1).sum() == 6
    assert data.train.paths[:2] == ("cat/0.png", "cat/1.png")
    with Image.open(folder / data.train.paths[5]) as expected:
        assert (data.train.x[5, 0].numpy() == np.asarray(expected)).all()
    assert (data.test, data.val) == (None, None)
    assert any("there are too few labels (4 per class) to hold out a test set" in note for note in data.notes)


@pytest.mark.parametrize("unlabelled", ["unlabelled", "_unlabeled", "Unlabeled"])
def test_split_folders(folder, tmp_path, unlabelled):
    root = tmp_path / "parts"
    shutil.copytree(folder, root / "train")
    (root / "train" / "unlabeled").rename(root / unlabelled)
    for i in range(4):
        image(root / "test" / "cat" / f"{i}.png")
        image(root / "validation" / "dog" / f"{i}.png")
    data = load(str(root))
    assert (len(data.train), len(data.test), len(data.val)) == (14, 4, 4)
    assert set(data.val.y.tolist()) == {1}


def test_a_test_folder_beside_the_classes(folder):
    for i in range(4):
        image(folder / "test" / "cat" / f"{i}.png")
    assert load(str(folder)).classes == ("cat", "dog")
    assert len(load(str(folder)).test) == 4


def test_a_class_may_be_called_test(folder):
    image(folder / "test" / "a.png")
    assert load(str(folder)).classes == ("cat", "dog", "test")


def test_loose_images_have_no_label(folder):
    image(folder / "loose.png")
    data = load(str(folder))
    assert (data.train.y == -1).sum() == 7
    assert any("directly in pets" in note for note in data.notes)


def test_held_out_from_many_labels(tmp_path):
    for name in ("a", "b"):
        for i in range(80):
            image(tmp_path / "many" / name / f"{i}.png")
    first = load(str(tmp_path / "many"))
    assert (len(first.train), len(first.val), len(first.test)) == (96, 24, 40)
    again = load(str(tmp_path / "many"))
    assert (first.test.x == again.test.x).all()
    whole = load(str(tmp_path / "many"), to_train_on=False)
    assert (len(whole.train), whole.test) == (160, None)
    held = {image.numpy().tobytes() for part in (first.val, first.test) for image in part.x}
    assert not held & {image.numpy().tobytes() for image in first.train.x}


def test_what_is_only_evaluated_on_needs_no_second_class(folder):
    shutil.rmtree(folder / "dog")
    with pytest.raises(UserError, match="At least 2 classes"):
        load(str(folder))
    assert load(str(folder), to_train_on=False).classes == ("cat",)
    (folder / "cat").rename(folder.parent / "cat")
    shutil.copytree(folder.parent / "cat", folder / "test" / "cat")
    assert len(load(str(folder), to_train_on=False).test) == 4


def test_a_table(folder):
    rows = [
        ("cat/0.png", "cat", "train"),
        ("dog/0.png", "dog", ""),
        ("dog/1.png", " ", ""),
        ("cat/1.png", "cat", "Test"),
    ]
    data = load(str(table(folder / "t.csv", rows)))
    assert data.train.y.tolist() == [0, 1, -1]
    assert len(data.test) == 1


def test_a_parquet_table(folder):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"path": "cat/0.png", "label": "cat"}, {"path": "dog/0.png", "label": "dog"}]
    rows.append({"path": "dog/1.png", "label": None})
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "t.parquet")
    assert load(str(folder / "t.parquet")).train.y.tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    ("rows", "columns", "problem"),
    [
        ([("../x.png", "a", "")], ("path", "label", "split"), "below the table's own folder"),
        ([("/etc/x.png", "a", "")], ("path", "label", "split"), "below the table's own folder"),
        ([("a.png", "a", "dev")], ("path", "label", "split"), "'dev'"),
        ([("", "a", "")], ("path", "label", "split"), "no path in line 2"),
        ([("a.png", "a")], ("file", "label"), "no column 'path'"),
        ([("a.png", "a", ""), ("a.png", "b", "")], ("path", "label", "split"), "twice"),
        ([], ("path", "label"), "no images"),
        ([("a.png", "a")], ("path;label", "x"), "no column 'path'"),
        ([], ("path;label",), "Separate its columns by commas"),
        ([("absent.png", "a"), ("absent2.png", "b")], ("path", "label"), "None of the 2"),
    ],
)
def test_tables_that_are_refused(folder, rows, columns, problem):
    with pytest.raises(UserError, match=problem):
        load(str(table(folder / "t.csv", rows, columns)))


def test_links_that_lead_out_are_refused(folder, tmp_path):
    image(tmp_path / "outside.png")
    os.symlink(tmp_path / "outside.png", folder / "cat" / "link.png")
    os.symlink(folder / "dog" / "0.png", folder / "cat" / "inside.png")
    data = load(str(folder))
    assert data.skipped == (("cat/link.png", "a link that leads out of the folder"),)
    assert "cat/inside.png" in data.train.paths


def test_unreadable_files_are_skipped(folder):
    (folder / "cat" / "bad.png").write_bytes(b"no image")
    (folder / "dog" / "notes.txt").write_text("not looked at")
    data = load(str(folder))
    assert data.skipped == (("cat/bad.png", "not an image"),)
    assert "cat/bad.png" not in data.train.paths
    assert any("1 image could not be used and was skipped: cat/bad.png" in note for note in data.notes)


def test_one_class_is_not_enough(folder):
    shutil.rmtree(folder / "dog")
    with pytest.raises(UserError, match="only 'cat' has any"):
        load(str(folder))


def test_a_test_class_that_cannot_be_learnt(folder):
    image(folder / "test" / "bird" / "0.png")
    with pytest.raises(UserError, match="'bird', which no training image has"):
        load(str(folder))


def test_an_empty_folder_and_other_files(tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match="no images"):
        load(str(tmp_path / "nothing"))
    (tmp_path / "x.doc").write_text("")
    with pytest.raises(UserError, match=r"x\.doc is none of these"):
        load(str(tmp_path / "x.doc"))


@pytest.mark.parametrize(
    ("sizes", "mode", "shape"),
    [
        ([(12, 10), (12, 10)], "L", (1, 10, 12)),
        ([(12, 10), (14, 10)], "L", (1, 16, 16)),
        ([(60, 50), (40, 40)], "RGB", (3, 32, 32)),
        ([(200, 150), (300, 400)], "RGB", (3, 48, 48)),
    ],
)
def test_the_chosen_shape(tmp_path, sizes, mode, shape):
    for i, size in enumerate(sizes):
        image(tmp_path / "d" / f"class {i}" / "a.png", size, mode)
    assert load(str(tmp_path / "d")).train.shape == shape
    assert load(str(tmp_path / "d"), side=20).train.shape == (shape[0], 20, 20)


def test_names_of_any_kind_survive(tmp_path):
    names = ('<script>alert("1")', "naïve 日本", "a'b;c,d\ne")
    for name in names:
        image(tmp_path / "d" / name / f"{name[:3]}.png")
    data = load(str(tmp_path / "d"))
    assert set(data.classes) == set(names)


def decoded_now(monkeypatch):
    """The paths that are decoded from here on."""
    seen = []
    true = cache.decode_image
    monkeypatch.setattr(cache, "decode_image", lambda path, shape: seen.append(path.name) or true(path, shape))
    return seen


def test_the_cache_is_used_again(folder, monkeypatch):
    first = load(str(folder))
    seen = decoded_now(monkeypatch)
    again = load(str(folder))
    assert seen == []
    assert (first.train.x == again.train.x).all()
    assert first.files == again.files


def test_a_changed_file_is_noticed(folder, monkeypatch):
    first = load(str(folder))
    image(folder / "cat" / "0.png")
    os.utime(folder / "cat" / "0.png", ns=(1, 1))
    image(folder / "dog" / "new.png")
    seen = decoded_now(monkeypatch)
    again = load(str(folder))
    assert sorted(seen) == ["0.png", "new.png"]
    assert first.files != again.files
    with Image.open(folder / "cat" / "0.png") as expected:
        assert (again.train.x[0, 0].numpy() == np.asarray(expected)).all()


def test_a_label_changes_the_fingerprint_but_nothing_is_decoded(folder, monkeypatch):
    rows = [("cat/0.png", "cat"), ("dog/0.png", "dog"), ("dog/1.png", "")]
    first = load(str(table(folder / "t.csv", rows, ("path", "label"))))
    seen = decoded_now(monkeypatch)
    rows[2] = ("dog/1.png", "dog")
    again = load(str(table(folder / "t.csv", rows, ("path", "label"))))
    assert seen == []
    assert first.files != again.files


def test_a_damaged_cache_is_made_anew(folder, cache_folder):
    first = load(str(folder)).train.x.clone()
    (found,) = cache_folder.glob("*/*/pixels")
    found.write_bytes(b"short")
    assert (load(str(folder)).train.x == first).all()


def test_a_cache_that_cannot_be_written(folder, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AFDA_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="AFDA_CACHE"):
        load(str(folder))


def test_old_caches_are_cleared_away(folder, cache_folder):
    for i in range(6):
        image(folder / "cat" / f"more {i}.png")
        load(str(folder))
    assert len(list(cache_folder.glob("*/*x*-*"))) == cache.KEPT


def test_progress_is_told(folder):
    told = []
    load(str(folder), progress=lambda *state: told.append(state))
    assert told[-1] == (14, 14)


def test_more_labels(folder, tmp_path):
    filled = table(tmp_path / "next.csv", [("unlabeled/deep/0.png", "dog"), ("cat/0.png", "")], ("path", "label"))
    data = load(str(folder), more_labels=[str(filled)])
    assert (data.train.y >= 0).sum() == 9
    assert data.train.y[data.train.paths.index("unlabeled/deep/0.png")] == 1
    assert data.files != load(str(folder)).files


@pytest.mark.parametrize(("row", "problem"), [(("cat/0.png", "bird"), "'bird'"), (("x.png", "cat"), "'x.png'")])
def test_more_labels_that_do_not_fit(folder, tmp_path, row, problem):
    with pytest.raises(UserError, match=problem):
        load(str(folder), more_labels=[str(table(tmp_path / "next.csv", [row], ("path", "label")))])


def test_the_list_does_not_depend_on_the_order_of_files(folder):
    paths = [entry.path for entry in list_files(folder).entries]
    assert paths == sorted(paths)


def test_links_of_whole_folders_are_refused(folder, tmp_path):
    image(tmp_path / "outside" / "0.png")
    os.symlink(tmp_path / "outside", folder / "bird")
    os.symlink("loop.png", folder / "cat" / "loop.png")
    data = load(str(folder))
    assert data.classes == ("cat", "dog")
    assert {path for path, _ in data.skipped} == {"bird", "cat/loop.png"}
    rows = [("bird/0.png", "x"), ("cat/0.png", "x"), ("dog/0.png", "y")]
    data = load(str(table(folder / "t.csv", rows, ("path", "label"))))
    assert data.skipped == (("bird/0.png", "a link that leads out of the folder"),)


def test_what_is_no_file_is_refused(folder):
    os.mkfifo(folder / "cat" / "pipe.png")
    assert load(str(folder)).skipped == (("cat/pipe.png", "not a file"),)


def test_whole_numbers_are_labels_too(folder):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"path": f"{name}/{i}.png", "label": label} for name, label in (("cat", 0.0), ("dog", 1.0)) for i in (0, 1)]
    parquet.write_table(pyarrow.Table.from_pylist([*rows, {"path": "cat/2.png", "label": None}]), folder / "t.parquet")
    data = load(str(folder / "t.parquet"))
    assert data.classes == ("0", "1")
    assert data.train.y.tolist() == [0, 0, -1, 1, 1]


def test_several_rounds_of_labels(folder, tmp_path):
    tables = [
        str(table(tmp_path / f"{i}.csv", [(f"unlabeled/deep/{i}.png", "dog")], ("path", "label"))) for i in range(2)
    ]
    data = load(str(folder), more_labels=tables)
    assert (data.train.y >= 0).sum() == 10
    assert data.more_labels == tuple(tables)


def test_a_table_that_was_not_filled_in(folder, tmp_path):
    with pytest.raises(UserError, match="no labels filled in"):
        load(str(folder), more_labels=[str(table(tmp_path / "next.csv", [("cat/0.png", "")], ("path", "label")))])


def test_nothing_readable_at_a_given_shape(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "d" / name).mkdir(parents=True)
        (tmp_path / "d" / name / "x.png").write_text("no image")
    with pytest.raises(UserError, match="None of the 2 images"):
        load(str(tmp_path / "d"), shape=(1, 8, 8))


def test_a_folder_with_a_dot_in_its_name(folder):
    assert load(str(folder.rename(folder.with_name("pets.v2")))).name == "pets.v2"
