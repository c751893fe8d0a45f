"""A person's path from a folder of images to predictions, typed as they would type it."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="module")
def place(tmp_path_factory, digits):
    """Digits as PNG files: 50 labels per class, the rest under unlabeled/, and a test folder."""
    root = tmp_path_factory.mktemp("own")
    kept = dict.fromkeys(range(10), 0)

    def save(image, folder, name):
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(folder / name)

    for i, (image, y) in enumerate(zip(digits.train.x, digits.train.y.tolist(), strict=True)):
        kept[y] += 1
        save(image, root / "images" / (f"digit {y}" if kept[y] <= 50 else "unlabeled"), f"{i}.png")
    for i, (image, y) in enumerate(zip(digits.test.x, digits.test.y.tolist(), strict=True)):
        save(image, root / "images" / "test" / f"digit {y}", f"{i}.png")
    return root


def afda(place, *arguments, code=0):
    environment = {**os.environ, "AFDA_CACHE": str(place / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "afda", *map(str, arguments)]
    done = subprocess.run(command, check=False, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def as_json(place, *arguments, code=0):
    return json.loads(afda(place, *arguments, "--json", code=code).stdout)


@pytest.fixture(scope="module")
def run(place):
    as_json(place, "train", "images", "--minutes", "0.7", "--threads", "1", "--out", "run")
    return place / "run"


def test_check(place):
    found = as_json(place, "check", "images")
    assert found["images"]["labelled"] + found["images"]["validation"] == 500
    assert found["images"]["test"] == 500
    assert found["expected"]["seconds_per_1000_steps"] > 0
    assert 0 < found["expected"]["comparison_minutes"] <= found["expected"]["minutes"]
    assert found["problem"] is None
    assert "digit 3" in afda(place, "check", "images").stdout


def test_train_within_minutes(run):
    result, selection = (json.loads((run / f"{name}.json").read_text()) for name in ("result", "selection"))
    (chosen,) = (one for one in selection["candidates"] if one["name"] == selection["chosen"])
    recipe = json.loads((run / "recipe.json").read_text())
    assert recipe == chosen["recipe"] | {"steps": recipe["steps"]}  # which fit into the time that was left
    assert chosen["trials"]
    assert not (run / "supervised-only").exists()
    assert result["steps"] == recipe["steps"] >= 50
    assert result["test_error"] < 60
    assert result["labels"] == 400
    assert result["temperature"] != 1


def test_it_says_whether_unlabelled_images_helped(place, run):
    again = afda(place, "train", "images", "--out", "run", "--resume")
    assert f"{json.loads((run / 'selection.json').read_text())['chosen']} was taken: " in again.stdout
    assert "cross-validated error" in again.stdout
    assert any("unlabelled images" in line and " on the labels alone" in line for line in again.stdout.splitlines())
    afda(place, "train", "images", "--out", "run", code=2)


def test_evaluate(place, run):
    stored = json.loads((run / "result.json").read_text())["test_error"]
    assert as_json(place, "evaluate", "run")["error"] == pytest.approx(stored)
    assert as_json(place, "evaluate", "run", "images/test")["error"] == pytest.approx(stored)


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_predict(place, run):
    summary = as_json(place, "predict", "run", "images/test", "-o", "p.csv")
    found = rows(place / "p.csv")
    assert summary["images"] == len(found) == 500
    wrong = sum(row["label"] not in row["path"] for row in found)
    assert 100 * wrong / 500 == pytest.approx(json.loads((run / "result.json").read_text())["test_error"])
    shares = [[float(v) for k, v in row.items() if k.startswith("p_")] for row in found]
    assert np.allclose(np.sum(shares, axis=1), 1, atol=1e-4)
    assert np.allclose(np.max(shares, axis=1), [float(row["confidence"]) for row in found])
    assert "already exists" in afda(place, "predict", "run", "images/test", "-o", "p.csv", code=2).stderr


def test_predict_other_forms(place, run):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    one = sorted((place / "images" / "test" / "digit 0").iterdir())[0]
    (place / "list.txt").write_text(f"{one.relative_to(place)}\nabsent.png\n")
    summary = as_json(place, "predict", "run", "list.txt", one, "-o", "p.parquet")
    assert (summary["images"], summary["skipped"]) == (2, 1)
    assert rows(place / "p.parquet-skipped.csv")[0]["path"] == "absent.png"
    assert pyarrow.read_table(place / "p.parquet").num_rows == 2
    as_json(place, "predict", "run", one, "-o", "p.jsonl")
    first = json.loads((place / "p.jsonl").read_text().splitlines()[0])
    assert first["path"] == str(one)


def test_images_unlike_the_training_images_are_flagged(place, run):
    random = np.random.default_rng(0)
    (place / "noise").mkdir()
    for i in range(50):
        Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(place / "noise" / f"{i}.png")
    assert as_json(place, "predict", "run", "noise", "-o", "noise.csv")["unlike"] >= 25
    assert as_json(place, "predict", "run", "images/unlabeled", "-o", "known.csv")["unlike"] < 30


def test_predict_says_what_is_wrong(place, run):
    (place / "empty").mkdir()
    for arguments, said in (
        (("predict", "run", "empty", "-o", "x.csv"), "no readable image"),
        (("predict", "run", "absent"), "no file or folder"),
        (("predict", "run", "images", "-o", "x.doc"), ".csv, .parquet, .jsonl"),
        (("predict", "images", "images", "-o", "x.csv"), "model.json"),
        (("predict", "run", "images", "-o", "run/model.json/x.csv"), "run/model.json is a file, not a folder"),
    ):
        assert said in afda(place, *arguments, code=2).stderr
        assert not (place / "x.csv").exists()


def test_export(place, run):
    onnxruntime = pytest.importorskip("onnxruntime")
    summary = as_json(place, "export", "run", "-o", "model.onnx")
    as_json(place, "predict", "run", "images/test", "-o", "compared.csv")
    session = onnxruntime.InferenceSession(place / "model.onnx")
    for row in rows(place / "compared.csv")[::100]:
        with Image.open(place / row["path"]) as image:
            given = np.asarray(image)[None, None]
        probabilities = session.run(["probabilities"], {"images": given})[0][0]
        assert probabilities == pytest.approx([float(row[f"p_{name}"]) for name in summary["classes"]], abs=1e-4)


def test_report_and_label_next(place, run):
    summary = as_json(place, "report", "run")
    page, suggestions = (place / name for name in summary["files"][:2])
    assert page.stat().st_size < 20e6
    wanted = rows(suggestions)
    assert wanted
    for row in wanted:
        row["label"] = row["suggested"]
    with open(place / "filled.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, wanted[0])
        writer.writeheader()
        writer.writerows(wanted)
    result = as_json(
        place, "train", "images", "--steps", "2", "--out", "more", "--no-baseline", "--more-labels", "filled.csv"
    )
    assert result["labels"] == 400 + len(wanted)
    assert "baseline" not in result


def test_a_changed_image_is_noticed_on_resume(place, run):
    afda(place, "train", "images", "--steps", "5", "--no-baseline", "--out", "changed")
    victim = sorted((place / "images" / "unlabeled").iterdir())[0]
    before = victim.read_bytes()
    Image.new("L", (8, 8)).save(victim)
    try:
        assert "have changed" in afda(place, "evaluate", "changed", code=2).stderr
    finally:
        victim.write_bytes(before)


def test_a_nasty_folder(tmp_path):
    random = np.random.default_rng(0)

    def image(path, size=(9, 9)):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (*size, 3), dtype=np.uint8)).save(path)

    root = tmp_path / "nasty"
    for name in ("<script>alert(1)<", "naïve 日本", 'it\'s "quoted" & spaced '):
        for i in range(6):
            image(root / name / f"{i} <b>.png")
    for i in range(10):
        image(root / "unlabeled" / f"{i}.webp")
    (root / "nothing here").mkdir()
    (root / "naïve 日本" / "text.jpg").write_text("hello")
    (root / "naïve 日本" / "corrupt.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    Image.new("1", (20_000, 20_000)).save(root / "naïve 日本" / "bomb.png")
    found = as_json(tmp_path, "check", "nasty")
    assert {"text.jpg", "corrupt.png", "bomb.png"} == {s["path"].split("/")[-1] for s in found["skipped"]}
    assert any("nothing here" in warning for warning in found["warnings"])
    as_json(tmp_path, "train", "nasty", "--steps", "3", "--out", "run")
    assert len(rows(tmp_path / "run" / "skipped.csv")) == 3
    assert as_json(tmp_path, "predict", "run", "nasty", "-o", "p.csv")["skipped"] == 3
    afda(tmp_path, "report", "run")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "images", "--minutes", "0"), "positive"),
        (("train", "images", "--minutes", "1", "--steps", "5"), "--minutes decides"),
        (("train", "images", "--minutes", "0.0001"), "give it at least"),
        (("train", "images/test/digit 0"), "At least 2 classes"),
        (("check", "images/test/digit 0"), "At least 2 classes"),
        (("check", "absent/folder"), "no file or folder"),
    ],
)
def test_mistakes_are_explained(place, arguments, said):
    assert said in afda(place, *arguments, code=2).stderr
