"""Records of runs, and the committed tables that follow from them."""

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from afda.errors import UserError
from afda.experiments.evidence import (
    collect_runs,
    fingerprint_split,
    load_records,
    read_evidence,
    remove_paths,
    write_evidence,
)
from afda.experiments.reproduce import plan_reproduction
from afda.runs.schemas import SplitIndices

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


@pytest.fixture(scope="module")
def committed():
    return read_evidence(RESULTS / "runs.jsonl")


@pytest.fixture(scope="module")
def rebuild():
    """The module results/rebuild.py."""
    spec = importlib.util.spec_from_file_location("rebuild", RESULTS / "rebuild.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def list_tables(folder):
    return {path.relative_to(folder): path for path in folder.rglob("tables/*") if path.is_file()}


def test_every_committed_table_follows_from_the_runs(committed, rebuild, tmp_path):
    rebuild.rebuild_tables(committed, tmp_path)
    ours, rebuilt = list_tables(RESULTS), list_tables(tmp_path)
    assert ours.keys() == rebuilt.keys()
    assert len([path for path in ours if path.suffix == ".csv"]) == 19
    for path, file in ours.items():
        assert file.read_bytes() == rebuilt[path].read_bytes(), path


def test_the_documentation_shows_or_links_the_tables_that_follow_from_the_runs(committed, rebuild):
    runs = {record.path: record for record in committed}
    pages = [path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]]
    for name, (_, builders) in rebuild.SUMMARIES.items():
        if any(f"results/tables/{name}.md" in page for page in pages):
            continue
        for cells in builders[0](runs)[1:]:
            line = r"[\s|]*".join(re.escape(cell) for cell in cells if cell)
            assert any(re.search(line, page) for page in pages), (name, cells)


def test_a_lost_run_is_noticed(committed, rebuild, tmp_path):
    with pytest.raises(ValueError, match="lacks 1 of 120 runs"):
        rebuild.rebuild_tables([r for r in committed if r.path != "cpu/digits-demo/vat-20-seed3"], tmp_path)


def test_committed_records_are_complete(committed):
    assert len({record.path for record in committed}) == len(committed) == 309
    for record in committed:
        assert re.fullmatch("sha256:[0-9a-f]{64}", record.split)
        rebuilt = re.match("second-views/.*-0.2-", record.path)
        assert record.environment.afda == ("0.2.0.dev0" if rebuilt else "0.1.0")
        assert record.precision in ("float32", "bfloat16")
        assert record.result.test is not None
        assert record.path.endswith(f"-seed{record.recipe.seed}") or "-again" in record.path
    text = (RESULTS / "runs.jsonl").read_text()
    assert not re.search(r'"/|\\\\|[a-z]:\\\\', text)  # no path of a machine


def test_runs_of_a_seed_share_their_labelled_images(committed):
    splits = {}
    for record in committed:
        recipe = record.recipe
        splits.setdefault((recipe.data, recipe.labels, recipe.validation, recipe.seed), set()).add(record.split)
    assert all(len(found) == 1 for found in splits.values())


def test_the_folder_of_results_holds_no_runs():
    assert not [path for path in RESULTS.rglob("*") if path.name in ("recipe.json", "log.jsonl", "split.json")]


def test_records_are_read_as_they_were_written(two_sweeps, tmp_path):
    _, (one, _) = two_sweeps
    records = collect_runs(one)
    assert [record.path for record in records] == sorted(record.path for record in records)
    assert len(records) == 4
    file = tmp_path / "runs.jsonl"
    assert write_evidence(file, records) == read_evidence(file) == load_records(file) == load_records(tmp_path)
    for line in map(json.loads, file.read_text().splitlines()):
        for name in ("recipe", "result", "environment"):
            assert line[name] == json.loads((one / line["path"] / f"{name}.json").read_text())


def test_a_record_replaces_an_earlier_one_of_the_same_path(two_sweeps, tmp_path):
    _, (one, _) = two_sweeps
    first, *others = collect_runs(one)
    file = tmp_path / "runs.jsonl"
    write_evidence(file, [first, others[0]])
    changed = replace(first, split="sha256:other")
    assert write_evidence(file, [changed, others[1]]) == [changed, *others[:2]]


def test_splits_have_the_same_fingerprint_if_they_have_the_same_images():
    one = fingerprint_split(SplitIndices(labelled=[3, 1], validation=[7]))
    assert one == fingerprint_split(SplitIndices(labelled=[1, 3], validation=[7]))
    assert one != fingerprint_split(SplitIndices(labelled=[1, 3, 7], validation=[]))


def test_paths_of_the_machine_are_left_out():
    environment = {
        "source": "/home/somebody/photos",
        "more_labels": ["/data/labels.csv"],
        "notes": ["/home/somebody/photos/a.jpg cannot be read."],
        "data": {"/home/somebody/photos": "0123"},
        "threads": 2,
    }
    assert remove_paths(environment) == {
        "source": "photos",
        "more_labels": ["labels.csv"],
        "notes": ["photos/a.jpg cannot be read."],
        "data": {"photos": "0123"},
        "threads": 2,
    }
    assert remove_paths({"source": "digits"}) == {"source": "digits"}


@pytest.mark.parametrize("line", ["", "[]", "{", '{"path": 3}', '{"path": "x", "recipe": {}}'])
def test_damaged_files_are_refused_in_one_sentence(tmp_path, line):
    (tmp_path / "runs.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=r"line 1, is damaged .*; restore the file\.$"):
        read_evidence(tmp_path / "runs.jsonl")


def test_the_committed_runs_of_the_digits_can_be_reused(tmp_path):
    """Their recipes are those of today."""
    plan = plan_reproduction("digits", seeds=5, out=tmp_path / "mine", reuse=RESULTS)
    assert (len(plan.jobs), plan.runs_reused, plan.reuse.refused) == (120, 120, {})
    assert plan.describe_reuse() == [f"120 of 120 runs are reused from {RESULTS}."]
