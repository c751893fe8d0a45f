"""The paper's tables and figures as sweeps: complete, independent of order, killed and continued."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from afda import paper
from afda.errors import UserError
from afda.recipes import recipe, shelf
from afda.report import tables
from afda.reproduce import EXPERIMENTS, cells, file_name, planned, remarks, table, written
from afda.runs import Run
from afda.sweep import sweep

QUICK = ["steps=20", "net.width=0.25", "labelled_batch=10", "unlabelled_batch=10"]


def afda(*arguments, **options):
    command = [sys.executable, "-m", "afda", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)


def settings(*texts):
    return [word for text in texts for word in ("--set", text)]


def test_every_printed_cell_of_our_methods_is_a_cell_of_its_table():
    for name, code in paper.TABLES.items():
        planned_points = {(c.data, c.method, c.align != "none", c.labels) for c in cells(name)}
        wanted = {
            (n.data, n.method, n.aligned, n.labels)
            for n in paper.numbers()
            if n.table == code and n.method and (code not in ("T1", "T2") or n.name == "AFDA (Ours)")
        }
        assert wanted <= planned_points, name


def test_every_cell_has_its_recipes():
    for _, chosen in EXPERIMENTS.values():
        for cell in chosen:
            assert f"{cell.data}-{cell.recipe}" in shelf()
            assert cell.data == "digits" or f"{cell.data}-{cell.recipe}-cpu" in shelf()


def test_misprints_are_put_right():
    assert len(paper.misprints()) == 12  # ten in tables 3 and 5, with six different values, and two in table-4
    right = paper.printed("svhn", "ConvLarge", "pi-model", False, 1000, "test_error_pct", "S_mmd")
    assert (right.mean, right.std) == (6.12, 0.24)
    right = paper.printed("svhn", "ConvLarge", "mean-teacher", False, 500, "test_error_pct", "S_mmd")
    assert (right.mean, right.std) == (7.07, 0.41)


def test_the_papers_gains():
    """The gain computed from the means agrees with the recomputed one of the data."""
    of_vat = (paper.printed("svhn", "ConvLarge", "vat", a, 150, "test_error_pct", "S_svhn") for a in (False, True))
    plain, aligned = (number.mean for number in of_vat)
    assert plain - aligned == pytest.approx(9.37)


def test_a_number_of_the_paper_is_found_wherever_it_stands(tmp_path):
    def row(name, labels, measure="mmd2_x1e3", only="method=supervised"):
        chosen = cells(name, f"{only},data=svhn,labels={labels}")
        return next(r for r in table(name, chosen, tmp_path, "cpu", 1) if r["measure"] == measure)

    assert row("table-5", 250)["paper_plain"]["mean"] == 36.4  # of figure-6
    assert row("figure-2", 500)["paper_plain"]["mean"] == 9.9  # of table-4
    assert row("figure-2", 250, "test_error_pct")["paper_plain"]["mean"] == 26.04
    assert row("table-7", 250, "test_error_pct")["paper_plain"]["mean"] != 26.04  # another net's
    quoted = row("table-1", 250, "test_error_pct", "method=vat+entropy")
    assert (quoted["paper_aligned"]["mean"], quoted["paper_gain"]) == (3.88, None)  # the plain one is others' work
    assert row("figure-1", 250, "test_error_pct", "method=vat+entropy")["paper_aligned"]["mean"] == 3.88


def test_only():
    assert {(c.method, c.labels) for c in cells("table-5", "method=vat,labels=250")} == {("vat", 250)}
    either = cells("table-5", "labels=250,method=vat,labels=500")
    assert {(c.method, c.labels) for c in either} == {("vat", 250), ("vat", 500)}
    for only, words in (
        ("method", "conditions"),
        ("nothing=1", "conditions"),
        ("method=absent", "can be"),
        ("method=vat,labels=30", "asks table-5 for labels=30"),
    ):
        with pytest.raises(UserError, match=words):
            cells("table-5", only)
    with pytest.raises(UserError, match="table-5"):
        cells("table5")


def test_the_digits_have_numbers_of_labels_of_their_own():
    for name in EXPERIMENTS:
        counts = {cell.labels for cell in cells(name, on_digits=True)}
        several = len({cell.labels for cell in EXPERIMENTS[name][1]}) > 1
        assert counts == ({20, 50, 100} if several else {50})
        assert {cell.data for cell in cells(name, on_digits=True)} == {"digits"}
    assert len(cells("digits")) == len(cells("digits", on_digits=True)) == len(cells("table-5", on_digits=True)) == 24
    assert {cell.labels for cell in cells("figure-2", labels=30, on_digits=True)} == {30}


def test_a_part_of_a_table_does_not_take_the_place_of_the_whole():
    assert file_name("table-5") == "table-5"
    assert file_name("table-5", "method=vat,labels=250") == "table-5-labels-250-method-vat"
    assert file_name("figure-7", labels=20, on_digits=True) == "figure-7-on-digits-with-20-labels"


def numbers_of(rows):
    return json.dumps(rows, sort_keys=True)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """One row of a table on the digits, run twice: backwards with one job at a time, and with two."""
    chosen = cells("table-5", "method=supervised", labels=20, on_digits=True)
    folders = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for folder, at_once in zip(folders, (1, 2), strict=True):
        jobs = planned("table-5", chosen, folder, "cpu", 2, QUICK)
        for _ in sweep(jobs[::-1] if at_once == 1 else jobs, at_once):
            pass
        assert [job.state for job in jobs] == ["done"] * 4
    return chosen, folders


def test_the_table_depends_neither_on_order_nor_on_jobs(swept):
    chosen, (one, two) = swept
    assert numbers_of(table("table-5", chosen, one, "cpu", 2)) == numbers_of(table("table-5", chosen, two, "cpu", 2))


def test_the_table_is_made_of_the_results(swept):
    chosen, (one, _) = swept
    row = table("table-5", chosen, one, "cpu", 2)[0]
    errors = [chosen[0].run(one, "cpu", seed).result()["test_error"] for seed in range(2)]
    assert row["plain"]["mean"] == pytest.approx(sum(errors) / 2)
    assert row["plain"]["std"] == pytest.approx(abs(errors[0] - errors[1]) / 2**0.5)
    assert row["gain"] == pytest.approx(row["plain"]["mean"] - row["aligned"]["mean"])
    assert row["pairs"] == 2
    assert row["paper_plain"] is None  # the paper has no digits
    assert row["signs_agree"] is None


def test_a_gain_is_of_the_seeds_that_both_ways_have(swept, tmp_path):
    """A sweep that was cut off must not compare an easy labelled set with a hard one."""
    (plain, aligned), (one, _) = swept
    shutil.copytree(one, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(aligned.run(tmp_path, "cpu", 1).path)
    row = table("table-5", [plain, aligned], tmp_path, "cpu", 2)[0]
    errors = [cell.run(one, "cpu", 0).result()["test_error"] for cell in (plain, aligned)]
    assert row["gain"] == pytest.approx(errors[0] - errors[1])
    assert tables.cells(row)[7] == ("1 of 1" if errors[0] > errors[1] else "0 of 1")


def test_cells_not_chosen_are_empty(swept):
    """Runs that happen to be there were not compared with the recipes of today."""
    (plain, _), (one, _) = swept
    rows = table("table-5", [plain], one, "cpu", 2)
    assert all(row["plain"] and row["aligned"] is None and row["gain"] is None for row in rows)


def test_cells_not_run_are_empty(tmp_path):
    rows = table("table-5", cells("table-5", "labels=250"), tmp_path, "cpu", 3)
    assert all(row["plain"] is None and row["gain"] is None for row in rows)
    assert rows[0]["paper_plain"] == {"mean": 26.04, "std": 1.43}
    assert tables.cells(rows[0])[4:8] == [""] * 4


def test_the_written_table_says_what_it_is_of(swept):
    chosen, (one, _) = swept
    rows = table("table-5", chosen, one, "cpu", 2)
    md, _, tex, page = written(rows, one, "table-5-on-digits", remarks("table-5", rows, "cpu", []), "afda")
    assert md.read_text().startswith("# table-5-on-digits")
    assert "embedded digits" in md.read_text()
    for path in (md, tex, page):  # the paper has nothing on them, so no empty columns
        assert "paper aligned" not in path.read_text()


def test_the_written_formats_agree(swept):
    chosen, (one, _) = swept
    rows = table("table-5", chosen, one, "cpu", 2)
    md, csv, tex, page = (
        path.read_text()
        for path in written(
            rows, one, "table-5", remarks("table-5", rows, "cpu", []), "afda reproduce table-5 --seeds 2"
        )
    )
    mean = f"{rows[0]['plain']['mean']:.2f}"
    assert mean in md
    assert mean in tex
    assert f"<td>{mean}" in page
    assert str(rows[0]["plain"]["mean"]) in csv
    assert "afda reproduce table-5 --seeds 2" in md
    assert len(csv.splitlines()) == len(rows) + 1


def test_finished_cells_of_other_settings_are_not_taken(swept):
    chosen, (one, _) = swept
    with pytest.raises(UserError, match="another recipe"):
        planned("table-5", chosen, one, "cpu", 2, ["steps=21"])


def test_the_bound_figure_is_killed_and_continued(tmp_path):
    """figure-5 on the digits: SIGKILL to the whole process group half-way, then the same command again. It ends as a
    run that nobody killed."""
    changed = ["steps=200", *QUICK[1:]]

    def command(out):
        how = ["--on-digits", "--labels", "20", "--out", out, "--json", *settings(*changed)]
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
    while len(run.log()) < 3 and first.poll() is None:
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not run.finished
    assert any(run.path.glob("checkpoint*.pt"))
    second = afda(*words)
    assert second.returncode == 0, second.stderr
    paths = json.loads(second.stdout)["files"]
    assert any(path.endswith("figure-5-on-digits-with-20-labels.svg") for path in paths)
    assert all(os.path.getsize(path) > 100 for path in paths)
    curve = run.result()["test_curve"]
    assert list(curve.values())[-1] == run.result()["test_error"]
    assert len(curve) == sum("bound" in line for line in run.log())
    assert not list(run.path.glob("snapshot-*"))
    words, whole = command(tmp_path / "whole")
    assert afda(*words).returncode == 0

    def timeless(values):
        return {name: value for name, value in values.items() if name not in ("seconds", "images_per_second")}

    assert timeless(run.result()) == timeless(whole.result())
    assert [timeless(line) for line in run.log()] == [timeless(line) for line in whole.log()]


def test_a_sweep_that_is_stopped_leaves_the_table_so_far(tmp_path):
    """Ctrl-C when the first run is done and the second has begun."""
    only, changed = "method=supervised,labels=20", ["steps=300", *QUICK[1:]]
    folder = tmp_path / ",".join(sorted(changed))
    first, second = (cell.run(folder, "cpu", 0) for cell in cells("table-5", only, on_digits=True))
    command = ["reproduce", "table-5", "--on-digits", "--only", only, "--seeds", "1", "--jobs", "1", "--out", tmp_path]
    words = [sys.executable, "-m", "afda", *map(str, command), *settings(*changed)]
    going = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    while not second.log() and going.poll() is None:
        time.sleep(0.05)
    going.send_signal(signal.SIGINT)
    _, told = going.communicate()
    assert "stopped with 1 of 2 runs done; the same command continues." in told
    text = (folder / "cpu" / "tables" / "table-5-on-digits-labels-20-method-supervised.md").read_text()
    assert f"{first.result()['test_error']:.2f} (1)" in text
    assert not second.finished
    done = afda(*command, *settings(*changed), "--json")
    assert (json.loads(done.stdout)["runs_done"], second.finished) == (2, True)


def test_labels_that_there_are_not_are_refused_before_anything_begins(tmp_path):
    for labels, words in ((2000, "only 1297"), (5, "cannot cover")):
        with pytest.raises(UserError, match=words):
            planned("table-5", cells("table-5", labels=labels, on_digits=True), tmp_path, "cpu", 1)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    refused = afda("reproduce", "digits", "--out", tmp_path / "file" / "below")
    assert "is a file, not a folder; choose another --out" in refused.stderr


def test_remarks(swept):
    chosen, (one, _) = swept
    rows, todo = table("table-5", chosen, one, "cpu", 3), planned("table-5", chosen, one, "cpu", 3, QUICK)
    text = remarks("table-5", rows, "cpu", todo, ["steps=20"])
    assert text.startswith("As table-5 (All operating points on SVHN), but on the embedded digits, steps=20:")
    assert "Unfinished: 4 of 6 runs." in text
    assert "plain and aligned supervised on digits differ in the recipe's statistics." in text
    assert "Unfinished" not in remarks("table-5", rows, "cpu", todo[:4])
    assert "float" not in text  # all are in float32, which goes without saying
    assert "Shortened" not in text  # the digits have no longer ones
    rows = table("table-5", cells("table-5", "method=supervised,labels=250"), one, "cpu", 1)
    text = remarks("table-5", rows, "cpu", [])
    assert "cpu profile" in text
    assert "Shortened" in text
    assert "the reduction is printed as 16.61 and is 17.61." in text
    assert text.count("misprint") == 1
    rows = table("table-5", cells("table-5", "method=supervised,labels=250,align=none"), one, "cpu", 1)
    assert "misprint" not in remarks("table-5", rows, "cpu", [])  # without a reduction
    rows = table("table-5", cells("table-5", "method=pi-model,labels=1000"), one, "cpu", 1)
    assert "puts its MMD^2 in doubt" in remarks("table-5", rows, "cpu", [])  # which is of table-4


def test_cells_keep_what_they_are(tmp_path):
    for setting in ("seed=7", "labels=30", "method=vat", "align=none", "data=svhn"):
        with pytest.raises(UserError, match="own " + setting.partition("=")[0]):
            planned("digits", cells("digits"), tmp_path, "cpu", 1, [setting])


def test_the_bound_figure_needs_its_curve(swept):
    from afda.illustrate import illustrated

    chosen, (one, _) = swept
    with pytest.raises(UserError, match="no test errors from the course of its training"):
        illustrated("figure-5", chosen, one, "cpu", 1, "figure-5")


def test_t_sne_panels(swept):
    from afda.illustrate import illustrated

    chosen, (one, _) = swept
    for path in illustrated("figure-4", chosen, one, "cpu", 2, "figure-4"):
        assert path.stat().st_size > 1000


def test_a_panel_that_is_not_there_leaves_its_place_empty():
    from afda.report.figures import embeddings_figure

    points, y = np.random.default_rng(0).random((6, 2)), np.arange(6)
    panel = {"points": points, "y": y, "labelled": y < 2, "caption": "", "title": "here"}
    drawn = embeddings_figure([None, panel, panel], 2, "note")
    assert [axes.get_visible() for axes in drawn.axes] == [False, True, True, False]


def test_the_course_of_a_training_is_kept_whatever_begins_it(tmp_path):
    """figure-5 draws a cell of table-1 and figure-1, and snapshots cannot be made afterwards."""
    for name in ("table-1", "figure-1", "figure-5"):
        jobs = planned(name, cells(name, "method=vat+entropy", on_digits=True, labels=50), tmp_path, "cpu", 1)
        assert jobs[-1].options == ("--snapshots",)
        assert jobs[0].options == (() if name == "table-1" else ("--snapshots",))


def test_what_is_refused_changes_no_table(swept, tmp_path):
    """Neither a bad place to run nor a figure that cannot be drawn, for want of weights, takes anything away."""
    _, (one, _) = swept
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
    words += ["--out", tmp_path / "copied", *settings(*QUICK)]
    refused = afda(*words, "--on", "mars")
    assert (refused.returncode, page.read_text()) == (2, "as it was")
    refused = afda(*words)  # before seed 2 is trained
    assert refused.returncode == 2
    assert "model.safetensors" in refused.stderr
    assert page.read_text() == "as it was"


def test_what_would_be_run(swept, tmp_path):
    _, (one, _) = swept
    folder = tmp_path / ",".join(sorted(QUICK))
    shutil.copytree(one, folder)
    before = sorted(tmp_path.rglob("*"))
    words = ["reproduce", "table-5", "--on-digits", "--labels", 20, "--only", "method=supervised", "--out", tmp_path]
    words += [*settings(*QUICK), "--dry-run"]
    told = json.loads(afda(*words, "--json").stdout)
    assert [run["finished"] for run in told["runs"]] == [True] * 4 + [False] * 2
    assert "Runs: 6, finished: 4" in afda(*words).stdout
    assert sorted(tmp_path.rglob("*")) == before
    for path in tmp_path.rglob("model.safetensors"):
        path.unlink()
    words[1] = "figure-4"  # which could not be drawn from these
    assert json.loads(afda(*words, "--json").stdout)["name"] == "figure-4"
    words[words.index(tmp_path)] = tmp_path / "new"
    assert afda(*words).returncode == 0
    assert not (tmp_path / "new").exists()


def test_a_table_says_what_precision_it_is_in(tmp_path):
    only, changed = ["--only", "method=supervised,labels=20,align=none"], settings("steps=4", *QUICK[1:])
    command = ["reproduce", "table-5", "--on-digits", *only, *changed, "--out", tmp_path]
    assert afda(*command, "--seeds", 1, "--precision", "bfloat16").returncode == 0
    (text,) = tmp_path.glob("*/cpu/tables/*.md")
    assert " In bfloat16." in text.read_text()
    assert afda(*command, "--seeds", 2).returncode == 0
    assert "some are in bfloat16, some in float32." in text.read_text()
    for precision, words in (("float32", "is a run in bfloat16; choose another --out"), ("float16", "did you mean")):
        refused = afda(*command, "--seeds", 1, "--precision", precision)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert words in refused.stderr
    next(tmp_path.glob("*/**/*seed0/result.json")).unlink()  # begun, but not finished
    assert "is a run in bfloat16" in afda(*command, "--seeds", 1, "--precision", "float32").stderr
    for environment in tmp_path.glob("*/**/environment.json"):
        environment.unlink()
    assert afda(*command, "--seeds", 2).returncode == 0
    assert "bfloat16" not in text.read_text().partition("Made by")[0]


def test_bad_names_are_one_sentence(tmp_path):
    done = afda("reproduce", "table-55", "--out", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "afda: There is no table or figure called 'table-55'; did you mean 'table-5'?\n"


@pytest.mark.parametrize("name", [name for name in shelf() if name.startswith(("svhn", "cifar10"))])
def test_full_length_recipes_build(name, digits):
    """Every recipe of the paper can be made for every method, plain and aligned."""
    for method in ("supervised", "pi-model", "mean-teacher", "vat", "vat+entropy"):
        for align in ("none", "adversarial"):
            made = recipe(name, digits, method, align)
            assert (made.title, made.steps > 1000) == (method + f"-{align}" * (align != "none"), True)


def test_the_literature_stands_below_our_rows(tmp_path):
    rows = table("table-2", cells("table-2"), tmp_path, "cpu", 1)
    quoted = {(row["method"], row["labels"]): row for row in rows if row["profile"] is None}
    assert len(quoted) == 8
    assert quoted["HybridNet, ShakeShake26-2x96d", 1000]["paper_plain"] == {"mean": 8.81, "std": None}
    assert "VAT+Ent, ConvLarge" in written(rows, tmp_path, "t", "about", "afda")[0].read_text()
    ours = {(row["method"], row["labels"], row["measure"]): row for row in rows if row["profile"] is not None}
    assert ours["supervised", 4000, "test_error_pct"]["paper_plain"]["mean"] == 15.45
    few = table("table-1", cells("table-1", "labels=250"), tmp_path, "cpu", 1)
    assert {row["labels"] for row in few} == {250}
    assert all(row["profile"] for row in table("table-1", cells("table-1", on_digits=True), tmp_path, "cpu", 1))


def test_the_misprints_are_listed():
    told = (Path(__file__).parent.parent / "docs" / "faithfulness.md").read_text()
    assert all(f"- {misprint}\n" in told for misprint in paper.misprints())
