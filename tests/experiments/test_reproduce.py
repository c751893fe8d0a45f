"""Reproducing tables and figures: plans, sweeps that are killed and continued, and reused runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace

import pytest
from reproduction import QUICK, plan_jobs, run_afda, set_options

from afda.errors import UserError
from afda.experiments.cells import select_cells
from afda.experiments.comparison import RunStore, build_rows
from afda.experiments.evidence import collect_runs, write_evidence
from afda.experiments.reproduce import DEFAULT_FOLDER, plan_reproduction, run_reproduction
from afda.runs.directory import Run


def test_finished_runs_of_another_recipe_are_refused(two_sweeps):
    chosen, (one, _) = two_sweeps
    with pytest.raises(UserError, match="another recipe"):
        plan_jobs("table-5", chosen, one, 2, ["steps=21"])


def test_the_bound_figure_is_killed_and_continued(tmp_path):
    """figure-5 on the digits: SIGKILL to the whole process group half-way, then the same command again. The run ends
    like one that was not killed."""
    changed = ["steps=200", *QUICK[1:]]

    def command(out):
        how = ["--on-digits", "--labels", "20", "--out", out, "--json", *set_options(*changed)]
        folder = out / ",".join(sorted(changed)) / "cpu" / "digits-demo"
        return ["reproduce", "figure-5", *how], Run(folder / "vat+entropy-adversarial-20-seed0")

    words, run = command(tmp_path / "killed")
    first = subprocess.Popen(
        [sys.executable, "-m", "afda", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "AFDA_CHECKPOINT_SECONDS": "-1"},
    )
    while len(run.log.read()) < 3 and first.poll() is None:
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not run.finished
    assert any(run.path.glob("checkpoint*.pt"))
    second = run_afda(*words)
    assert second.returncode == 0, second.stderr
    paths = json.loads(second.stdout)["files"]
    assert any(path.endswith("figure-5-on-digits-with-20-labels.svg") for path in paths)
    assert all(os.path.getsize(path) > 100 for path in paths)
    curve = run.read_result().test_curve
    assert list(curve.values())[-1] == run.read_result().test_error
    assert len(curve) == sum(line.bound is not None for line in run.log.read())
    assert not list(run.path.glob("snapshot-*"))
    words, whole = command(tmp_path / "whole")
    assert run_afda(*words).returncode == 0

    def timeless(values):
        return {name: value for name, value in values.items() if name not in ("seconds", "images_per_second")}

    assert timeless(run.read_result().to_dict()) == timeless(whole.read_result().to_dict())
    assert [timeless(line.to_dict()) for line in run.log.read()] == [
        timeless(line.to_dict()) for line in whole.log.read()
    ]


def test_a_sweep_that_is_stopped_leaves_the_table_so_far(tmp_path):
    """Ctrl-C when the first run is done and the second has begun."""
    only, changed = "method=supervised,labels=20", ["steps=300", *QUICK[1:]]
    folder = tmp_path / ",".join(sorted(changed))
    first, second = (cell.run(folder, "cpu", 0) for cell in select_cells("table-5", only, on_digits=True))
    command = ["reproduce", "table-5", "--on-digits", "--only", only, "--seeds", "1", "--jobs", "1", "--out", tmp_path]
    words = [sys.executable, "-m", "afda", *map(str, command), *set_options(*changed)]
    going = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    while not second.log.read() and going.poll() is None:
        time.sleep(0.05)
    going.send_signal(signal.SIGTERM)  # as Ctrl-C, which tests that run in the background of a shell ignore
    _, messages = going.communicate()
    assert "Note: stopped with 1 of 2 runs done. Repeat the command to continue." in messages
    text = (folder / "cpu" / "tables" / "table-5-on-digits-labels-20-method-supervised.md").read_text()
    assert f"{first.read_result().test_error:.2f} (1)" in text
    assert not second.finished
    done = run_afda(*command, *set_options(*changed), "--json")
    assert (json.loads(done.stdout)["runs_done"], second.finished) == (2, True)


def test_too_many_labels_are_refused_before_anything_starts(tmp_path):
    for labels, words in ((2000, "only 1297"), (5, "cannot cover")):
        with pytest.raises(UserError, match=words):
            plan_jobs("table-5", select_cells("table-5", labels=labels, on_digits=True), tmp_path, 1)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    refused = run_afda("reproduce", "digits", "--out", tmp_path / "file" / "below")
    assert "is a file, not a folder; choose another --out" in refused.stderr


def test_settings_cannot_change_what_a_cell_is(tmp_path):
    for setting in ("seed=7", "labels=30", "method=vat", "align=none", "data=svhn"):
        with pytest.raises(UserError, match="own " + setting.partition("=")[0]):
            plan_jobs("digits", select_cells("digits"), tmp_path, 1, [setting])


def test_snapshots_are_kept_whichever_table_starts_the_run(tmp_path):
    """figure-5 draws a cell of table-1 and figure-1, and snapshots cannot be made afterwards."""
    for name in ("table-1", "figure-1", "figure-5"):
        chosen = select_cells(name, "method=vat+entropy", on_digits=True, labels=50)
        jobs = plan_jobs(name, chosen, tmp_path, 1)
        assert jobs[-1].options == ("--snapshots",)
        assert jobs[0].options == (() if name == "table-1" else ("--snapshots",))


def test_a_refused_command_changes_no_table(two_sweeps, tmp_path):
    """Neither a bad --on nor a figure that cannot be drawn without weights removes anything."""
    _, (one, _) = two_sweeps
    folder = tmp_path / "copied" / ",".join(sorted(QUICK))
    shutil.copytree(one, folder)
    called = "figure-4-on-digits-with-20-labels-method-supervised"
    page, picture = folder / "cpu" / "tables" / f"{called}.html", folder / "cpu" / "figures" / f"{called}.png"
    for path in (page, picture):
        path.parent.mkdir(exist_ok=True)
        path.write_text("as it was")
    for path in folder.glob("**/model.safetensors"):
        path.unlink()
    words = ["reproduce", "figure-4", "--on-digits", "--labels", "20", "--only", "method=supervised"]
    words += ["--out", tmp_path / "copied", *set_options(*QUICK)]
    refused = run_afda(*words, "--on", "mars")
    assert (refused.returncode, page.read_text()) == (2, "as it was")
    refused = run_afda(*words)  # before seed 2 is trained
    assert refused.returncode == 2
    assert "model.safetensors" in refused.stderr
    assert page.read_text() == "as it was"


def test_a_dry_run_writes_nothing(two_sweeps, tmp_path):
    _, (one, _) = two_sweeps
    folder = tmp_path / ",".join(sorted(QUICK))
    shutil.copytree(one, folder)
    before = sorted(tmp_path.rglob("*"))
    words = ["reproduce", "table-5", "--on-digits", "--labels", 20, "--only", "method=supervised", "--out", tmp_path]
    words += [*set_options(*QUICK), "--dry-run"]
    plan = json.loads(run_afda(*words, "--json").stdout)
    assert [run["finished"] for run in plan["runs"]] == [True] * 4 + [False] * 2
    assert "Runs: 6, finished: 4" in run_afda(*words).stdout
    assert sorted(tmp_path.rglob("*")) == before
    for path in tmp_path.rglob("model.safetensors"):
        path.unlink()
    words[1] = "figure-4"  # which could not be drawn from these
    assert json.loads(run_afda(*words, "--json").stdout)["name"] == "figure-4"
    words[words.index(tmp_path)] = tmp_path / "new"
    assert run_afda(*words).returncode == 0
    assert not (tmp_path / "new").exists()


def test_a_table_says_what_precision_it_is_in(tmp_path):
    only, changed = ["--only", "method=supervised,labels=20,align=none"], set_options("steps=4", *QUICK[1:])
    command = ["reproduce", "table-5", "--on-digits", *only, *changed, "--out", tmp_path]
    assert run_afda(*command, "--seeds", 1, "--precision", "bfloat16").returncode == 0
    (text,) = tmp_path.glob("*/cpu/tables/*.md")
    assert " In bfloat16." in text.read_text()
    assert run_afda(*command, "--seeds", 2).returncode == 0
    assert "some are in bfloat16, some in float32." in text.read_text()
    for precision, words in (("float32", "is a run in bfloat16; choose another --out"), ("float16", "did you mean")):
        refused = run_afda(*command, "--seeds", 1, "--precision", precision)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert words in refused.stderr
    next(tmp_path.glob("*/**/*seed0/result.json")).unlink()  # begun, but not finished
    assert "is a run in bfloat16" in run_afda(*command, "--seeds", 1, "--precision", "float32").stderr
    for environment in tmp_path.glob("*/**/environment.json"):
        environment.unlink()
    assert run_afda(*command, "--seeds", 2).returncode == 0
    assert "bfloat16" not in text.read_text().partition("Made by")[0]


def test_bad_names_are_one_sentence(tmp_path):
    done = run_afda("reproduce", "table-55", "--out", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: There is no table or figure called 'table-55'; did you mean 'table-5'?\n"


def plan_reuse(source, out, name="table-5", **options):
    """Plan the runs of `two_sweeps` in another folder."""
    same = {"only": "method=supervised", "labels": 20, "on_digits": True, "settings": QUICK, "seeds": 2}
    return plan_reproduction(name, out=out, reuse=source, **same, **options)


@pytest.fixture
def evidence(two_sweeps, tmp_path):
    """The runs of a sweep as one file."""
    _, (one, _) = two_sweeps
    prefix = ",".join(sorted(QUICK))
    records = [replace(record, path=f"{prefix}/{record.path}") for record in collect_runs(one)]
    write_evidence(tmp_path / "evidence" / "runs.jsonl", records)
    return tmp_path / "evidence"


def test_reused_runs_count_as_finished(two_sweeps, evidence, tmp_path):
    chosen, (one, _) = two_sweeps
    out = tmp_path / "mine"
    for source in (evidence, evidence / "runs.jsonl"):
        plan = plan_reuse(source, out)
        assert (len(plan.jobs), plan.runs_done, plan.runs_reused) == (4, 4, 4)
    assert not out.exists()
    words = ["reproduce", "table-5", "--on-digits", "--labels", 20, "--only", "method=supervised", "--seeds", 2]
    done = run_afda(*words, *set_options(*QUICK), "--out", out, "--reuse", evidence, "--json")
    assert f"4 of 4 runs are reused from {evidence}" in done.stderr
    result = json.loads(done.stdout)
    assert (result["runs"], result["runs_done"], result["runs_reused"]) == (4, 4, 4)
    assert result["rows"] == [asdict(row) for row in build_rows("table-5", chosen, RunStore(one), "cpu", 2)]
    (text,) = out.glob("*/cpu/tables/*.md")
    assert f"Reused from {evidence}: 4 of 4 runs." in text.read_text()
    assert not list(out.rglob("result.json"))  # our runs do not become the user's


def test_runs_of_the_user_come_before_reused_ones(two_sweeps, evidence, tmp_path):
    chosen, (one, _) = two_sweeps
    own = chosen[0].path("cpu", 1)
    shutil.copytree(one / own, tmp_path / "mine" / ",".join(sorted(QUICK)) / own)
    plan = plan_reuse(evidence, tmp_path / "mine")
    assert (plan.runs_done, plan.runs_reused) == (4, 3)


def test_a_folder_of_runs_is_reused_with_its_weights(two_sweeps, tmp_path):
    _, (one, _) = two_sweeps
    shutil.copytree(one, tmp_path / "theirs" / ",".join(sorted(QUICK)))
    plan = plan_reuse(tmp_path / "theirs", tmp_path / "mine", "figure-4")
    assert (plan.runs_done, plan.runs_reused) == (4, 4)
    assert any(path.suffix == ".svg" for path in run_reproduction(plan).files)
    for path in (tmp_path / "theirs").rglob("model.safetensors"):
        path.unlink()
    with pytest.raises(UserError, match=r"has no model\.safetensors, .*leave out --reuse"):
        run_reproduction(plan_reuse(tmp_path / "theirs", tmp_path / "mine", "figure-4"))


def test_runs_of_another_recipe_or_precision_are_not_reused(evidence, tmp_path):
    lines = [json.loads(line) for line in (evidence / "runs.jsonl").read_text().splitlines()]
    lines[0]["recipe"]["steps"] = 21
    (evidence / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    plan = plan_reuse(evidence, tmp_path / "mine")
    assert (plan.runs_done, plan.runs_reused) == (3, 3)
    assert plan.describe_reuse() == [
        f"3 of 4 runs are reused from {evidence}.",
        f"1 run of {evidence} with another recipe or precision is not reused, the first "
        "cpu/digits-demo/supervised-20-seed0 (steps: 21 there, 20 now).",
    ]
    plan = plan_reuse(evidence, tmp_path / "mine", precision="bfloat16")
    assert (plan.runs_done, len(plan.reuse.refused)) == (0, 4)
    assert "4 runs of" in plan.describe_reuse()[1]


def test_figures_say_what_reused_runs_lack(evidence, tmp_path):
    with pytest.raises(UserError, match=r"has no model\.safetensors, so its features .*leave out --reuse"):
        run_reproduction(plan_reuse(evidence, tmp_path / "mine", "figure-4"))


@pytest.mark.parametrize(
    ("source", "words"),
    [("empty", "neither a runs.jsonl"), ("absent", "There is no"), ("damaged.jsonl", "line 1, is damaged")],
)
def test_a_source_without_runs_is_refused(tmp_path, source, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged.jsonl").write_text('{"path": "x"}\n')
    with pytest.raises(UserError, match=words):
        plan_reuse(tmp_path / source, tmp_path / "mine")


def test_by_default_nothing_is_finished_and_nothing_reused(tmp_path):
    plan = plan_reproduction("digits", seeds=5, out=tmp_path / "mine")
    assert (len(plan.jobs), plan.runs_done, plan.runs_reused) == (120, 0, 0)
    assert DEFAULT_FOLDER.name != "results"
