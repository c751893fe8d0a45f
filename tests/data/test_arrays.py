import hashlib
import io
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from afda.data.arrays import from_arrays, load
from afda.errors import UserError

X = np.random.default_rng(0).integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)
Y = np.array([3, -1, 7, 7, -1, 3])


def test_images_become_channel_first():
    data = from_arrays(X, Y)
    assert data.train.x.shape == (6, 3, 8, 9)
    assert data.train.x[4, 2, 7, 1] == X[4, 7, 1, 2]
    assert (data.name, data.test, data.val, data.balanced) == ("arrays", None, None, False)


def test_labels_are_renumbered_and_named():
    data = from_arrays(X, Y)
    assert data.classes == ("3", "7")
    assert data.train.y.tolist() == [0, -1, 1, 1, -1, 0]


def test_labels_sort_as_numbers():
    assert from_arrays(X, [10, 9, -1, 100, 9, 10]).classes == ("9", "10", "100")


def test_labels_may_be_names():
    data = from_arrays(X, np.array(["dog", "", "cat", "cat", "", "dog"]), x_val=X[:2], y_val=np.array(["cat", "dog"]))
    assert data.classes == ("cat", "dog")
    assert data.train.y.tolist() == [1, -1, 0, 0, -1, 1]
    assert data.val.y.tolist() == [0, 1]


def test_classes_name_the_labels():
    assert from_arrays(X, [0, 1, 1, -1, -1, 0], classes=["z", "a"]).classes == ("z", "a")
    named = from_arrays(X, np.array(["a", "z", "z", "", "", "a"]), classes=["z", "a"])
    assert named.train.y.tolist() == [1, 0, 0, -1, -1, 1]


def test_unsigned_labels_and_columns_of_labels():
    assert from_arrays(X, np.array([[2**64 - 1], [0]] * 3, dtype=np.uint64)).train.y.tolist() == [1, 0] * 3


def test_grey_images_get_a_channel():
    assert from_arrays(X[..., 0], Y).train.x.shape == (6, 1, 8, 9)


def test_float_images_are_scaled():
    floats = from_arrays(X / 255, Y, x_test=X, y_test=np.full(6, 3))
    assert torch.equal(floats.train.x, floats.test.x)


def test_vectors_become_float32():
    data = from_arrays(np.arange(12).reshape(6, 2), Y)
    assert data.train.x.dtype == torch.float32
    assert data.train.x[5].tolist() == [10, 11]
    assert (data.preparation.normalise, data.preparation.shift) == ("standard", 0)


@pytest.mark.parametrize(("side", "shift"), [(1, 0), (2, 1), (15, 1), (16, 2), (40, 2)])
def test_shift_fits_the_image(side, shift):
    preparation = from_arrays(np.zeros((2, side, 40), np.uint8), [0, 1]).preparation
    assert (preparation.normalise, preparation.shift, preparation.flip) == ("centre", shift, False)


def test_arrays_are_copied():
    mine = X.copy()
    data = from_arrays(mine[..., :1], Y)
    mine[:] = 0
    assert data.train.x.any()


def test_read_only_arrays_are_fine():
    frozen = X.copy()
    frozen.flags.writeable = False
    assert len(from_arrays(frozen, Y).train) == 6


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x": X[:0], "y": Y[:0]}, "x is empty"),
        ({"x": X[:, :0]}, "x is empty"),
        ({"x": X[0, 0, 0]}, "x has the shape"),
        ({"x": X[None]}, "x has the shape"),
        ({"x": np.uint8(3)}, "x has the shape"),
        ({"x": X[:5]}, "5 images but 6 labels"),
        ({"x": X[..., :2]}, "x has 2 channels"),
        ({"x": X.transpose(0, 3, 1, 2)}, "x has 9 channels"),
        ({"x": X.astype(int)}, "x holds int64 pixels; give uint8"),
        ({"x": X > 9}, "x holds bool pixels"),
        ({"x": X.astype(float)}, "outside 0 to 1"),
        ({"x": X / 255 - 0.1}, "outside 0 to 1"),
        ({"x": np.full(X.shape, np.nan)}, "are not numbers"),
        ({"x": np.full((6, 2), np.nan)}, "not finite"),
        ({"x": np.full((6, 2), 1e300)}, "not finite"),
        ({"x": np.full((6, 2), 1j)}, "x holds complex128"),
        ({"x": np.full((6, 2), "a")}, "x holds <U1"),
        ({"y": Y.astype(float)}, "y holds float64"),
        ({"y": Y == 3}, "y holds bool"),
        ({"y": Y.astype(object)}, "y holds object"),
        ({"y": Y.reshape(2, 3)}, r"y has the shape \(2, 3\)"),
        ({"y": np.int64(3)}, r"y has the shape \(\)"),
        ({"y": Y - 1}, "y has the label -2"),
        ({"y": Y * 0 + 3}, "at least 2 classes are needed; there is 1"),
        ({"y": Y * 0 - 1}, "at least 2 classes are needed; there are none"),
        ({"y": np.array([""] * 6)}, "at least 2 classes are needed; there are none"),
        ({"classes": ["a", "b"]}, "y has the label 3, which is not one of the classes"),
        ({"classes": list("abcdefgh")}, "class 'a' has no labelled image"),
        ({"y": [0, 1, 1, -1, 0, 1], "classes": list("abc")}, "class 'c' has no labelled image"),
        ({"y": np.array(["a", "b", "c"] * 2), "classes": ["a", "b"]}, "y has the label 'c'"),
        ({"classes": ["a", "a"]}, "different names"),
        ({"classes": ["a", ""]}, "different names"),
        ({"classes": [["a", "b"]]}, "different names"),
        ({"classes": [0.5, 1.5]}, "different names"),
        ({"classes": ["a"]}, "at least 2 classes"),
        ({"x_test": X}, "both x_test and y_test"),
        ({"y_val": Y}, "both x_val and y_val"),
        ({"x_test": X, "y_test": Y}, "y_test lacks some"),
        ({"x_test": X, "y_test": np.abs(Y)}, "y_test has the label 1, which no image in y has"),
        ({"x_val": X, "y_val": np.array(["a"] * 6)}, "y_val has the label 'a', which no image in y has"),
        ({"x_val": X, "y_val": [3]}, "6 images but 1 labels"),
        ({"x_val": X[:, :4], "y_val": [3] * 6}, "have the shape"),
        ({"x_val": X[:, :, 0, 0], "y_val": [3] * 6}, "have the shape"),
        ({"x_test": X[:0], "y_test": Y[:0]}, "x_test is empty"),
    ],
)
def test_bad_arrays(change, sentence):
    with pytest.raises(UserError, match=sentence) as raised:
        from_arrays(**{"x": X, "y": Y} | change)
    assert str(raised.value).endswith(".")


def saved(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path


def test_file_with_everything(tmp_path):
    held_out = {"x_test": 255 - X[:2], "y_test": [1, 2], "x_val": 255 - X[2:3], "y_val": [0]}
    path = saved(tmp_path / "mine.npz", x=X, y=[0, 1, 2, -1, -1, -1], **held_out, classes=list("abc"), extra=[1])
    data = load(str(path))
    assert (data.name, data.classes) == ("mine", ("a", "b", "c"))
    assert (len(data.train), data.test.y.tolist(), data.val.y.tolist()) == (6, [1, 2], [0])
    assert data.files == {"mine.npz": hashlib.sha256(path.read_bytes()).hexdigest()}


@pytest.mark.parametrize("key", ["x", "y"])
def test_file_without_a_needed_array(tmp_path, key):
    arrays = {"x": X, "y": Y}
    del arrays[key]
    with pytest.raises(UserError, match=f"has no array '{key}'"):
        load(saved(tmp_path / "a.npz", **arrays))


def npy(array=X, **options):
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a zip", npy(), npy(np.array([{}]), allow_pickle=True)])
def test_file_that_is_no_npz(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.npz is not a readable \.npz file"):
        load(path)


def test_object_arrays_are_not_read(tmp_path):
    with pytest.raises(UserError, match="plain arrays"):
        load(saved(tmp_path / "a.npz", x=X, y=Y.astype(object)))


def test_file_cut_short(tmp_path):
    path = saved(tmp_path / "a.npz", x=X, y=Y)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match="readable"):
        load(path)


def test_header_that_announces_too_much(tmp_path):
    path = saved(tmp_path / "a.npz", x=X, y=Y)
    header = {"descr": "|u1", "fortran_order": False, "shape": (1 << 60,)}
    lie = io.BytesIO()
    np.lib.format.write_array_header_1_0(lie, header)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", lie.getvalue() + b"short")
        archive.writestr("y.npy", npy(Y))
    with pytest.raises(UserError, match="memory"):
        load(path)


@pytest.mark.parametrize("name", ["absent.npz", "."])
def test_file_that_is_absent_or_a_folder(tmp_path, name):
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / name)


@given(st.binary(max_size=300))
@settings(max_examples=60, deadline=None)
def test_random_bytes(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    path.write_bytes(content)
    with pytest.raises(UserError):
        load(path)


@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4), st.booleans())
@settings(max_examples=100, deadline=None)
def test_damaged_file_raises_nothing_but_user_errors(tmp_path_factory, edits, zipped):
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    (np.savez_compressed if zipped else np.savez)(path, x=X[:, :2, :2], y=Y)
    content = bytearray(path.read_bytes())
    for where, byte in edits:
        content[where % len(content)] = byte
    path.write_bytes(content)
    with suppress(UserError):
        assert len(load(path).train) == 6


def test_without_a_test_set_one_is_held_out(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (180, 8, 8), dtype=np.uint8)
    y = np.array([0, 1] * 80 + [-1] * 20)
    np.savez(tmp_path / "many.npz", x=x, y=y)
    data = load(tmp_path / "many.npz")
    assert (len(data.train), len(data.val), len(data.test)) == (116, 24, 40)
    assert data.notes == (
        "there is no test set, so 40 of the 160 labelled images are held out as one.",
        "there is no validation set, so 24 of the 120 labelled images are held out as one.",
    )
    assert (data.train.x[:, 0].numpy() == x[data.train.rows]).all()
    assert (data.train.y.numpy() == y[data.train.rows]).all()
    held = {image.numpy().tobytes() for part in (data.val, data.test) for image in part.x}
    assert not held & {image.numpy().tobytes() for image in data.train.x}
    assert len(load(tmp_path / "many.npz", to_train_on=False).train) == 180


@pytest.mark.parametrize(
    ("labels", "parts", "note"),
    [
        (
            98,
            (98, None, None),
            "there are too few labels (49 per class) to hold out a test set or a validation set, so all of the labels "
            "are used for training.",
        ),
        (
            100,
            (76, None, 24),
            "there are too few labels (38 per class) to hold out a validation set, so all labels that are left are "
            "used for training.",
        ),
    ],
)
def test_few_labels_are_not_held_out(tmp_path, labels, parts, note):
    x = np.random.default_rng(0).integers(0, 256, (labels, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "few.npz", x=x, y=np.arange(labels) % 2)
    data = load(tmp_path / "few.npz")
    assert tuple(None if part is None else len(part) for part in (data.train, data.val, data.test)) == parts
    assert data.notes[-1] == note


def test_data_of_a_run_of_an_earlier_version_are_held_out_as_they_were(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (80, 8, 8), dtype=np.uint8)
    x[1] = x[3]
    np.savez(tmp_path / "old.npz", x=x, y=np.arange(80) % 2)
    data = load(tmp_path / "old.npz", load_rules=1)
    assert (len(data.train), len(data.val), len(data.test)) == (48, 12, 20)
    assert data.load_rules == 1


def test_with_a_test_set_all_labels_are_kept(tmp_path):
    np.savez(tmp_path / "both.npz", x=np.zeros((80, 8, 8), np.uint8), y=[0, 1] * 40, x_test=X[..., 0], y_test=[0] * 6)
    with pytest.raises(UserError, match="make them alike"):
        load(tmp_path / "both.npz")
    x = np.random.default_rng(0).integers(0, 256, (80, *X.shape[1:3]), dtype=np.uint8)
    np.savez(tmp_path / "both.npz", x=x, y=[0, 1] * 40, x_test=X[..., 0], y_test=[0] * 6)
    data = load(tmp_path / "both.npz")
    assert (len(data.train), data.val, data.train.rows) == (80, None, None)


@pytest.mark.parametrize("labels", [{"y": [0] * 6}, {"y": [1, 1, 1, 0, 0, 0], "classes": ["a", "b", "c"]}])
def test_what_is_only_evaluated_on_needs_no_second_class(tmp_path, labels):
    np.savez(tmp_path / "few.npz", x=X, **labels)
    with pytest.raises(UserError):
        load(tmp_path / "few.npz")
    assert len(load(tmp_path / "few.npz", to_train_on=False).train) == 6
