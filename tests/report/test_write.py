"""The files of a report, and the images to label next."""

import csv

import numpy as np
import pytest

from afda.data import load
from afda.errors import UserError
from afda.report.labelling import choose_uncertain_and_diverse
from afda.report.write import write_report


def test_uncertain_and_diverse():
    random = np.random.default_rng(0)
    centres = np.repeat(np.eye(4) * 20, 100, axis=0)
    features = centres + random.normal(size=centres.shape)
    first = np.where(np.arange(400) % 2, 0.55, 0.99) + 0.004 * random.uniform(size=400)
    chosen = choose_uncertain_and_diverse(features, np.stack([first, 1 - first], axis=1), 4)
    assert sorted(chosen // 100) == [0, 1, 2, 3]
    assert (first[chosen] < 0.56).all()
    # All alike, or fewer than asked for.
    assert len(choose_uncertain_and_diverse(np.ones((9, 2)), np.full((9, 2), 0.5), 4)) == 4
    assert len(choose_uncertain_and_diverse(features[:3], np.full((3, 2), 0.5), 4)) == 3


def test_the_table_to_fill_in_is_accepted_back(page_file, content, tmp_path):
    table = page_file.with_name("report-label-next.csv")
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert list(rows[0]) == ["row", "label", "suggested", "confidence"]
    assert {row["label"] for row in rows} == {""}
    assert [int(row["row"]) for row in rows] == content.label_next.rows
    for row in rows[:2]:
        row["label"] = row["suggested"]
    filled = tmp_path / "filled.csv"
    with filled.open("w", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    again = load("digits", more_labels=[str(filled)])
    place = {str(row): i for i, row in enumerate(again.train.rows)}
    assert [again.classes[again.train.y[place[row["row"]]]] for row in rows[:2]] == [r["label"] for r in rows[:2]]


def test_files_are_overwritten_only_on_request(runs, copy_run, machine, tmp_path):
    path = copy_run(runs[1], tmp_path / "run", without=("model.safetensors",))
    written = write_report([path], machine)
    assert written == [path / "report.html"]
    with pytest.raises(UserError, match="already exists; add --overwrite"):
        write_report([path], machine)
    assert write_report([path], machine, overwrite=True) == written
    (path / "result.json").unlink()
    with pytest.raises(UserError, match="is not finished"):
        write_report([path], machine, overwrite=True)
    with pytest.raises(UserError, match="There is no directory"):
        write_report([tmp_path / "absent"], machine)
    with pytest.raises(UserError, match="is a directory"):
        write_report([runs[0]], machine, tmp_path)


def test_filled_in_labels_are_never_overwritten(runs, copy_run, machine, tmp_path):
    path = copy_run(runs[1], tmp_path / "run", without=("model.safetensors",))
    (path / "report-label-next.csv").write_text("row,label,suggested,confidence\n3,seven,1,0.5\n")
    with pytest.raises(UserError, match="has labels filled in"):
        write_report([path], machine, overwrite=True)
