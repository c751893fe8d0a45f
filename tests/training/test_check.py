"""Inspecting data before training."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from afda.errors import UserError
from afda.training.check import check_data, describe_duplicates


@pytest.mark.parametrize(
    ("kind", "count", "words"),
    [
        (
            "test and unlabelled",
            2,
            "2 test images also occur among the unlabelled training images, so the test error is optimistic.",
        ),
        (
            "labelled and test",
            1,
            "1 test image also occurs among the labelled training images, so the test error is optimistic.",
        ),
        (
            "labelled and test and unlabelled",
            2,
            "2 test images also occur among the labelled and the unlabelled training images, so the test error is "
            "optimistic.",
        ),
        ("test and validation", 2, "2 images occur among the test and the validation images, such as a = b."),
        ("within labelled", 1, "1 image occurs more than once among the labelled images, such as a = b."),
        ("contradicting", 3, "3 images occur more than once with different labels, such as a = b."),
    ],
)
def test_duplicates_in_words(kind, count, words):
    assert describe_duplicates(kind, [["a", "b"]] * count) == words


def test_findings_in_arrays(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    y = np.array([0] * 40 + [1] * 3 + [-1] * 17)
    x[41] = x[0]  # with another label
    np.savez(tmp_path / "mine.npz", x=x, y=y, x_test=x[50:52], y_test=[0, 1])
    result = check_data(str(tmp_path / "mine.npz"), threads=1)
    assert (result.problem, result.files) == (None, None)
    assert result.data.images.model_dump() == {"labelled": 41, "unlabelled": 16, "validation": 0, "test": 2}
    assert result.data.notes == (
        "2 unlabelled images are exact copies of test images and were dropped, such as train image 50 = test image 0.",
    )
    assert result.data.warnings == (
        "1 image occurs with contradicting labels, such as train image 0 ('0') = train image 41 ('1'); each of them is "
        "used once, without a label. Correct the labels, or delete the wrong copies.",
        "1 class has fewer than 5 labels ('1'); label more images of them first.",
        "'0' has 20 times as many labels as '1'; compare the errors per class, not only the overall error.",
    )
    assert result.data.duplicates == {
        "test and unlabelled": [["train image 50", "test image 0"], ["train image 51", "test image 1"]],
        "within labelled": [["train image 0", "train image 41"]],
        "contradicting": [["train image 0", "train image 41"]],
    }
    expected = result.data.expected
    assert expected.seconds_per_1000_steps > 0
    assert expected.minutes >= expected.comparison_minutes > 0
    keys = "name shape images classes unlabelled_shares notes skipped files duplicates warnings expected problem"
    assert list(result.to_json()) == keys.split()


def test_warnings_tell_only_of_copies_that_are_used(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8)
    x_test = np.concatenate([x[:1], 255 - x[:2], 255 - x[:1]])
    np.savez(tmp_path / "mine.npz", x=x, y=[0, 1] * 10 + [-1] * 10, x_test=x_test, y_test=[1, 0, 1, 0])
    result = check_data(str(tmp_path / "mine.npz"), threads=1)
    assert result.data.notes == (
        "1 labelled image is an exact copy of a test image and was dropped: train image 0 = test image 0.",
    )
    assert result.data.warnings == (
        "1 image occurs more than once among the test images, such as test image 1 = test image 3.",
        "1 image occurs more than once with different labels, such as train image 0 = test image 0.",
    )


def test_built_in_data_sets_keep_their_copies(monkeypatch, digits):
    doubled = replace(digits, test=digits.train[torch.arange(3)])
    monkeypatch.setattr("afda.training.check.load", lambda *_, **__: doubled)
    result = check_data("digits", threads=1, labels=50)
    assert result.data.warnings[0] == (
        "3 test images also occur among the labelled training images, so the test error is optimistic."
    )


def test_data_that_cannot_be_trained_on(tmp_path):
    (tmp_path / "images" / "cat").mkdir(parents=True)
    result = check_data(str(tmp_path / "images"))
    assert result.data is None
    assert list(result.to_json()) == ["files", "problem"]
    assert "sizes" not in result.to_json()["files"]
    with pytest.raises(UserError, match="no file or folder"):
        check_data(str(tmp_path / "absent.npz"))


def test_class_shares_of_the_unlabelled_images(tmp_path):
    random = np.random.default_rng(0)
    truth = np.concatenate([np.repeat([0, 1], 10), np.zeros(160, int), np.ones(40, int)])
    x = random.normal(size=(len(truth), 5)) + 2.5 * truth[:, None]
    y = np.where(np.arange(len(truth)) < 20, truth, -1)
    np.savez(tmp_path / "mine.npz", x=x.astype(np.float32), y=y)
    found = check_data(str(tmp_path / "mine.npz"), threads=1)
    assert found.data.unlabelled_shares == pytest.approx({"0": 0.8, "1": 0.2}, abs=0.06)
    assert found.to_json()["unlabelled_shares"] == found.data.unlabelled_shares


def test_no_shares_where_they_would_be_a_guess(tmp_path):
    random = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", x=random.normal(size=(120, 5)).astype(np.float32), y=[0, 1] * 10 + [-1] * 100)
    assert check_data(str(tmp_path / "noise.npz"), threads=1).data.unlabelled_shares is None
    np.savez(tmp_path / "few.npz", x=random.normal(size=(103, 5)).astype(np.float32), y=[0, 1, 1] + [-1] * 100)
    assert check_data(str(tmp_path / "few.npz"), threads=1).data.unlabelled_shares is None
