"""The cells of the paper's tables and figures, and the paper's numbers."""

from pathlib import Path

import pytest

from afda.errors import UserError
from afda.experiments import paper
from afda.experiments.cells import EXPERIMENTS, make_file_name, select_cells
from afda.recipes import list_recipes, recipe


def test_every_printed_cell_of_our_methods_is_a_cell_of_its_table():
    for name, code in paper.TABLES.items():
        points = {(c.data, c.method, c.align != "none", c.labels) for c in select_cells(name)}
        wanted = {
            (n.data, n.method, n.aligned, n.labels)
            for n in paper.load_numbers()
            if n.table == code and n.method and (code not in ("T1", "T2") or n.name == "AFDA (Ours)")
        }
        assert wanted <= points, name


def test_every_cell_has_its_recipes():
    for _, chosen in EXPERIMENTS.values():
        for cell in chosen:
            assert f"{cell.data}-{cell.recipe}" in list_recipes()
            assert cell.data == "digits" or f"{cell.data}-{cell.recipe}-cpu" in list_recipes()


@pytest.mark.parametrize("name", [name for name in list_recipes() if name.startswith(("svhn", "cifar10"))])
def test_full_length_recipes_build(name, digits):
    """Every recipe of the paper can be made for every method, plain and aligned."""
    for method in ("supervised", "pi-model", "mean-teacher", "vat", "vat+entropy"):
        for align in ("none", "adversarial"):
            made = recipe(name, digits, method, align)
            assert (made.title, made.steps > 1000) == (method + f"-{align}" * (align != "none"), True)


def test_misprints_are_corrected():
    assert len(paper.list_misprints()) == 12  # ten in tables 3 and 5, with six different values, and two in table-4
    right = paper.find_number("svhn", "ConvLarge", "pi-model", False, 1000, "test_error_pct", "S_mmd")
    assert (right.mean, right.std) == (6.12, 0.24)
    right = paper.find_number("svhn", "ConvLarge", "mean-teacher", False, 500, "test_error_pct", "S_mmd")
    assert (right.mean, right.std) == (7.07, 0.41)


def test_misprints_are_listed_in_the_documentation():
    pages = [path.read_text() for path in (Path(__file__).parents[2] / "docs").rglob("*.md")]
    assert all(any(f"- {misprint}\n" in page for page in pages) for misprint in paper.list_misprints())


def test_gains_of_the_paper_follow_from_its_means():
    numbers = (paper.find_number("svhn", "ConvLarge", "vat", a, 150, "test_error_pct", "S_svhn") for a in (False, True))
    plain, aligned = (number.mean for number in numbers)
    assert plain - aligned == pytest.approx(9.37)


def test_only():
    assert {(c.method, c.labels) for c in select_cells("table-5", "method=vat,labels=250")} == {("vat", 250)}
    either = select_cells("table-5", "labels=250,method=vat,labels=500")
    assert {(c.method, c.labels) for c in either} == {("vat", 250), ("vat", 500)}
    for only, words in (
        ("method", "conditions"),
        ("nothing=1", "conditions"),
        ("method=absent", "can be"),
        ("method=vat,labels=30", "table-5 has no labels=30 with the other conditions"),
    ):
        with pytest.raises(UserError, match=words):
            select_cells("table-5", only)
    with pytest.raises(UserError, match="table-5"):
        select_cells("table5")


def test_digits_have_their_own_numbers_of_labels():
    for name, experiment in EXPERIMENTS.items():
        counts = {cell.labels for cell in select_cells(name, on_digits=True)}
        several = len({cell.labels for cell in experiment.cells}) > 1
        assert counts == ({20, 50, 100} if several else {50})
        assert {cell.data for cell in select_cells(name, on_digits=True)} == {"digits"}
    sizes = [len(select_cells("digits")), *(len(select_cells(name, on_digits=True)) for name in ("digits", "table-5"))]
    assert sizes == [24] * 3
    assert {cell.labels for cell in select_cells("figure-2", labels=30, on_digits=True)} == {30}


def test_a_part_of_a_table_has_files_of_its_own():
    assert make_file_name("table-5") == "table-5"
    assert make_file_name("table-5", "method=vat,labels=250") == "table-5-labels-250-method-vat"
    assert make_file_name("figure-7", labels=20, on_digits=True) == "figure-7-on-digits-with-20-labels"
