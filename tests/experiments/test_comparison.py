"""Rows of reproduced tables, their text and their files."""

import shutil

import pytest
from reproduction import QUICK, plan_jobs

from afda.experiments.cells import select_cells
from afda.experiments.comparison import PaperValue, RunStore, build_rows, describe_precisions, describe_rows
from afda.experiments.reproduce import Plan, Reuse
from afda.experiments.tables import format_row, write_table


def test_a_number_of_the_paper_is_found_in_any_table():
    def find_row(name, labels, measure="mmd2_x1e3", only="method=supervised"):
        chosen = select_cells(name, f"{only},data=svhn,labels={labels}")
        return next(r for r in build_rows(name, chosen, RunStore(None), "cpu", 1) if r.measure == measure)

    assert find_row("table-5", 250).paper_plain.mean == 36.4  # of figure-6
    assert find_row("figure-2", 500).paper_plain.mean == 9.9  # of table-4
    assert find_row("figure-2", 250, "test_error_pct").paper_plain.mean == 26.04
    assert find_row("table-7", 250, "test_error_pct").paper_plain.mean != 26.04  # another network's
    quoted = find_row("table-1", 250, "test_error_pct", "method=vat+entropy")
    assert (quoted.paper_aligned.mean, quoted.paper_gain) == (3.88, None)  # the plain one is from the literature
    assert find_row("figure-1", 250, "test_error_pct", "method=vat+entropy").paper_aligned.mean == 3.88


def test_the_table_depends_neither_on_order_nor_on_jobs(two_sweeps):
    chosen, folders = two_sweeps
    one, two = (build_rows("table-5", chosen, RunStore(folder), "cpu", 2) for folder in folders)
    assert one == two


def test_the_table_summarises_the_results(two_sweeps):
    chosen, (one, _) = two_sweeps
    row = build_rows("table-5", chosen, RunStore(one), "cpu", 2)[0]
    errors = [chosen[0].run(one, "cpu", seed).read_result().test_error for seed in range(2)]
    assert row.plain.mean == pytest.approx(sum(errors) / 2)
    assert row.plain.std == pytest.approx(abs(errors[0] - errors[1]) / 2**0.5)
    assert row.gain == pytest.approx(row.plain.mean - row.aligned.mean)
    assert row.pairs == 2
    assert row.paper_plain is None  # the paper has no digits
    assert row.signs_agree is None


def test_a_gain_is_of_the_seeds_that_both_variants_have(two_sweeps, tmp_path):
    """A sweep that was stopped must not compare an easy labelled set with a hard one."""
    (plain, aligned), (one, _) = two_sweeps
    shutil.copytree(one, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(aligned.run(tmp_path, "cpu", 1).path)
    row = build_rows("table-5", [plain, aligned], RunStore(tmp_path), "cpu", 2)[0]
    errors = [cell.run(one, "cpu", 0).read_result().test_error for cell in (plain, aligned)]
    assert row.gain == pytest.approx(errors[0] - errors[1])
    assert format_row(row)[7] == ("1 of 1" if errors[0] > errors[1] else "0 of 1")


def test_cells_not_chosen_are_empty(two_sweeps):
    """Runs of cells that were not chosen were not compared with the current recipes."""
    (plain, _), (one, _) = two_sweeps
    rows = build_rows("table-5", [plain], RunStore(one), "cpu", 2)
    assert all(row.plain and row.aligned is None and row.gain is None for row in rows)


def test_cells_not_run_are_empty(tmp_path):
    rows = build_rows("table-5", select_cells("table-5", "labels=250"), RunStore(tmp_path), "cpu", 3)
    assert all(row.plain is None and row.gain is None for row in rows)
    assert rows[0].paper_plain == PaperValue(26.04, 1.43)
    assert format_row(rows[0])[4:8] == [""] * 4


def test_the_written_table_says_what_it_is_of(two_sweeps, tmp_path):
    chosen, (one, _) = two_sweeps
    rows = build_rows("table-5", chosen, RunStore(one), "cpu", 2)
    md, _, tex, page = write_table(rows, tmp_path, "table-5-on-digits", describe_rows("table-5", rows, "cpu"), "afda")
    assert md.read_text().startswith("# table-5-on-digits")
    assert "embedded digits" in md.read_text()
    for path in (md, tex, page):  # the paper has nothing on them, so no empty columns
        assert "paper aligned" not in path.read_text()


def test_the_written_formats_agree(two_sweeps, tmp_path):
    chosen, (one, _) = two_sweeps
    rows = build_rows("table-5", chosen, RunStore(one), "cpu", 2)
    about, command = describe_rows("table-5", rows, "cpu"), "afda reproduce table-5 --seeds 2"
    md, csv, tex, page = (path.read_text() for path in write_table(rows, tmp_path, "table-5", about, command))
    mean = f"{rows[0].plain.mean:.2f}"
    assert mean in md
    assert mean in tex
    assert f"<td>{mean}" in page
    assert str(rows[0].plain.mean) in csv
    assert command in md
    assert len(csv.splitlines()) == len(rows) + 1


def test_the_text_above_a_table(two_sweeps):
    chosen, (one, _) = two_sweeps
    rows = build_rows("table-5", chosen, RunStore(one), "cpu", 3)
    jobs = plan_jobs("table-5", chosen, one, 3, QUICK)
    plan = Plan("table-5", "cpu", 3, chosen, [], "auto", one, "table-5", jobs, Reuse())
    text = describe_rows("table-5", rows, "cpu", ["steps=20"], plan.describe_state())
    assert text.startswith("As table-5 (All operating points on SVHN), but on the embedded digits, steps=20:")
    assert "Unfinished: 4 of 6 runs." in text
    assert "plain and aligned supervised on digits differ in the recipe's statistics." in text
    assert "float" not in text  # all are in float32, which goes without saying
    assert "Our runs are short" not in text  # the digits have no longer ones
    plan = Plan("table-5", "cpu", 3, chosen, [], "auto", one, "table-5", jobs[:4], Reuse())
    assert plan.describe_state() == []


def test_misprints_are_mentioned_beside_their_numbers():
    def describe(only):
        rows = build_rows("table-5", select_cells("table-5", only), RunStore(None), "cpu", 1)
        return describe_rows("table-5", rows, "cpu")

    text = describe("method=supervised,labels=250")
    assert "cpu profile" in text
    assert "Our runs are short" in text
    assert "the reduction is printed as 16.61 and is 17.61." in text
    assert text.count("misprint") == 1
    assert "misprint" not in describe("method=supervised,labels=250,align=none")  # without a reduction
    assert "puts its MMD^2 in doubt" in describe("method=pi-model,labels=1000")  # which is of table-4


def test_the_precision_is_mentioned_unless_it_is_float32():
    assert describe_precisions([None, "float32"]) == ""
    assert describe_precisions(["bfloat16"]) == "In bfloat16."
    assert "some in float32" in describe_precisions(["bfloat16", "float32"])


def test_the_literature_stands_below_our_rows(tmp_path):
    rows = build_rows("table-2", select_cells("table-2"), RunStore(None), "cpu", 1)
    quoted = {(row.method, row.labels): row for row in rows if row.profile is None}
    assert len(quoted) == 8
    assert quoted["HybridNet, ShakeShake26-2x96d", 1000].paper_plain == PaperValue(8.81, None)
    assert "VAT+Ent, ConvLarge" in write_table(rows, tmp_path, "t", "about", "afda")[0].read_text()
    ours = {(row.method, row.labels, row.measure): row for row in rows if row.profile is not None}
    assert ours["supervised", 4000, "test_error_pct"].paper_plain.mean == 15.45
    few = build_rows("table-1", select_cells("table-1", "labels=250"), RunStore(None), "cpu", 1)
    assert {row.labels for row in few} == {250}
    on_digits = build_rows("table-1", select_cells("table-1", on_digits=True), RunStore(None), "cpu", 1)
    assert all(row.profile for row in on_digits)
