"""A user's own images through the commands: copies are dropped, groups are kept together, and runs keep to both."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

FAST = ("--steps", 2, "--threads", 1, "--net", "mlp", "--no-baseline", "--set", "align.hidden=8")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Two classes, 60 labels each in bursts of six, and unlabelled images of the same bursts."""
    monkeypatch.setenv("AFDA_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    for i in range(180):
        folder = tmp_path / "photos" / ("cat", "dog", "unlabeled")[i % 3] / f"burst {i // 18}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / f"{i}.png")
    return tmp_path / "photos"


def test_groups_of_a_run(afda, photos, tmp_path):
    out = tmp_path / "run"
    code, _, err = afda("train", photos, *FAST, "--group-by", "folder", "--out", out)
    assert code == 0, err
    assert "36 of the 120 labelled images are held out as one, in whole groups; 18 unlabelled images" in err
    assert json.loads((out / "environment.json").read_text())["group_by"] == "folder"
    code, text, err = afda("evaluate", out, "--json")
    assert (code, json.loads(text)["images"]) == (0, 36), err
    (out / "result.json").unlink()
    assert afda("train", photos, "--resume", "--out", out)[0] == 0
    (out / "environment.json").write_text((out / "environment.json").read_text().replace('"folder"', "null"))
    assert "have changed" in afda("evaluate", out)[2]


def test_groups_in_a_check(afda, photos):
    code, text, _ = afda("check", photos, "--group-by", "folder", "--threads", 1, "--json")
    assert (code, json.loads(text)["images"]["test"]) == (0, 36)
    for command in ("train", "check"):
        code, _, err = afda(command, photos, "--group-by", "folders")
        assert (code, "no grouping called 'folders'; did you mean 'folder'?" in err) == (2, True)


def test_copies_of_a_run(afda, photos, tmp_path):
    out, cat, dog = tmp_path / "run", photos / "cat" / "burst 0", photos / "dog" / "burst 0"
    shutil.copy(cat / "0.png", dog / "copy.png")
    shutil.copy(cat / "3.png", photos / "unlabeled" / "copy.png")
    code, _, err = afda("train", photos, *FAST, "--out", out)
    assert code == 0, err
    assert "Warning: 1 image occurs with contradicting labels, such as cat/burst 0/0.png ('cat') = dog/burst 0/" in err
    assert "Note: 1 unlabelled image is an exact copy of a labelled image and was dropped: unlabeled/copy.png = " in err
    assert json.loads((out / "result.json").read_text())["labels"] == 119 - 29
    assert afda("evaluate", out)[0] == 0
    code, text, _ = afda("check", photos, "--threads", 1)
    assert code == 0
    assert "No problems found" not in text
    (out / "result.json").unlink()
    assert afda("train", photos, "--resume", "--out", out)[0] == 0
    shutil.copy(cat / "6.png", photos / "unlabeled" / "another.png")
    code, _, err = afda("train", photos, "--resume", "--out", out)
    assert (code, "have changed since it was started" in err) == (2, True)


def test_when_the_labels_alone_are_compared_with_and_trained_on(afda, tmp_path, digits):
    arrays = {"x": digits.train.x[:80, 0].numpy(), "y": np.where(np.arange(80) < 40, digits.train.y[:80], -1)}
    np.savez(tmp_path / "few.npz", **arrays)

    def train(out, *more):
        tiny = ("--steps", 2, "--set", "net.width=0.25", "--threads", 1, "--json")
        code, text, err = afda("train", tmp_path / "few.npz", *tiny, "--out", tmp_path / out, *more)
        assert code == 0, err
        return json.loads(text)

    def list_compared(found):
        return [row["name"] for row in found["selection"]["candidates"]]

    found = train("auto")
    assert {"supervised", "afda", "vat"} <= set(list_compared(found))
    assert "unlabelled images" in found["verdict"]
    assert found["cross_validation"]["images"] == 40
    assert "baseline" not in found
    assert not (tmp_path / "auto" / "supervised-only").exists()
    found = train("named", "--method", "vat", "--align", "none")
    assert (list_compared(found), found["selection"]["chosen"]) == (["supervised", "vat"], "vat")
    assert {"verdict", "baseline"} & set(found) == {"verdict"}
    assert not {"selection", "verdict", "baseline"} & set(train("plain", "--method", "vat", "--no-baseline"))
    assert {"selection", "verdict", "baseline"} <= set(train("asked", "--method", "vat", "--baseline"))
    assert (tmp_path / "asked" / "supervised-only" / "result.json").exists()
