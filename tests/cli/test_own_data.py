"""A user's own images through the commands: copies are dropped, groups are kept together, and runs keep to both."""

import json
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from command import read_error, run_command
from PIL import Image

from afda.runs.directory import Run

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
    assert sum(map(sum, found["cross_validation"]["confusion"])) == 40
    assert "baseline" not in found
    assert not (tmp_path / "auto" / "supervised-only").exists()
    found = train("named", "--method", "vat", "--align", "none")
    assert (list_compared(found), found["selection"]["chosen"]) == (["supervised", "vat"], "vat")
    assert {"verdict", "baseline"} & set(found) == {"verdict"}
    assert not {"selection", "verdict", "baseline"} & set(train("plain", "--method", "vat", "--no-baseline"))
    assert {"selection", "verdict", "baseline"} <= set(train("asked", "--method", "vat", "--baseline"))
    assert (tmp_path / "asked" / "supervised-only" / "result.json").exists()


def save_vectors(path, x, y):
    np.savez(path, x=np.asarray(x, dtype=np.float32), y=y)
    return path


def test_a_comparison_that_is_killed_is_continued(tmp_path):
    random = np.random.default_rng(0)
    y = np.arange(80) % 2
    data = save_vectors(tmp_path / "mine.npz", random.normal(size=(80, 4)) + y[:, None], y)
    command = ["train", data, "--labels", "20", "--steps", "60", "--threads", "1", "--quiet", "--out"]
    assert run_command(*command, tmp_path / "whole").returncode == 0
    killed = tmp_path / "killed"
    arguments = [sys.executable, "-m", "afda", *map(str, command), str(killed)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        while running.poll() is None and count_trials(killed) < 2:
            time.sleep(0.005)
        running.kill()
        running.communicate()
    assert count_trials(killed) >= 2
    done = run_command("train", data, "--resume", "--quiet", "--out", killed)
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("recipe.json", "model.safetensors", "split.json"):
        assert (killed / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def count_trials(out):
    selection = Run(out).read_selection() if out.exists() else None
    return 0 if selection is None else sum(len(one.trials) for one in selection.candidates)


def test_a_signal_stops_a_comparison(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 4))
    data, out = save_vectors(tmp_path / "mine.npz", x, [0, 1, -1] * 20), tmp_path / "run"
    command = [sys.executable, "-m", "afda", "train", data, "--steps", 50_000, "--threads", 1, "--out", out]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while running.poll() is None and count_trials(out) < 1:
            time.sleep(0.005)
        running.send_signal(signal.SIGINT)
        printed, err = running.communicate()
    assert (running.returncode, printed) == (130, "")
    message = f"Note: stopped after {count_trials(out)} trials; continue with: afda train {data} --out {out} --resume"
    assert err.splitlines()[-1] == message
    assert "Traceback" not in err


TINY = ("--steps", 5, "--threads", 1)


def train_on(afda, tmp_path, data):
    """Train with the automatic choice and return the result and what was said."""
    code, text, err = afda("train", data, *TINY, "--json", "--out", tmp_path / "run")
    assert code == 0, err
    return json.loads(text), err


def test_every_class_has_a_single_label(afda, tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 4))
    found, _ = train_on(afda, tmp_path, save_vectors(tmp_path / "mine.npz", x, [0, 1, 2, *[-1] * 37]))
    assert found["selection"]["chosen"] == "afda"
    assert "every class has one label only" in found["selection"]["reason"]
    assert not {"verdict", "cross_validation"} & {key for key, value in found.items() if value is not None}


def test_one_class_has_a_single_label(afda, tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 4))
    y = np.where(np.arange(60) < 20, np.arange(60) % 2, -1)
    y[20] = 2
    found, _ = train_on(afda, tmp_path, save_vectors(tmp_path / "mine.npz", x, y))
    assert sum(map(sum, found["cross_validation"]["confusion"])) == 20  # its label is never held out


def test_five_hundred_classes_of_two_labels(afda, tmp_path):
    random = np.random.default_rng(0)
    centres = 10 * random.normal(size=(500, 16))
    x = np.concatenate([centres, centres, centres]) + random.normal(size=(1500, 16))
    y = np.concatenate([np.arange(500), np.arange(500), np.full(500, -1)])
    found, _ = train_on(afda, tmp_path, save_vectors(tmp_path / "mine.npz", x, y))
    assert found["labels"] == 1000
    assert found["selection"]["chosen"] == "linear"


def test_a_pool_of_ten(afda, tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", x=x, y=[*[0, 1] * 10, *[-1] * 10])
    found, _ = train_on(afda, tmp_path, tmp_path / "mine.npz")
    assert found["labels"] == 20


def test_all_labels_in_one_class(afda, tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 4))
    data = save_vectors(tmp_path / "mine.npz", x, [*[0] * 20, *[-1] * 20])
    message = read_error(*afda("train", data, *TINY, "--out", tmp_path / "run"))
    assert "at least 2 classes" in message
    assert not (tmp_path / "run").exists()


def test_copies_that_contradict_each_other(afda, tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 4))
    x[1] = x[0]
    found, err = train_on(afda, tmp_path, save_vectors(tmp_path / "mine.npz", x, [*[0, 1] * 10, *[-1] * 20]))
    assert "with contradicting labels" in err
    assert found["labels"] == 18
