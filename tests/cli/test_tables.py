"""Results as tables and sentences."""

from pathlib import Path

from rich.console import Console

from afda.cli import console, tables
from afda.runs.evaluate import Evaluation
from afda.runs.schemas import Result, Scores

RESULT = {
    "test_error": 1.25,
    "val_error": None,
    "mmd2": 0.002,
    "bound": {"gap": 0.1, "total": 0.5, "remainder": 0.25},
    "labels": 50,
    "unlabelled": 1247,
    "seconds": 3.2,
    "images_per_second": 1000.0,
}


def render(table, width=200):
    """Return a table as text."""
    screen = Console(width=width, markup=console.out._markup, emoji=console.out._emoji)
    with screen.capture() as captured:
        screen.print(table)
    return captured.get()


def test_an_error_says_of_how_many_images_it_is():
    scores = Scores(error=0.0, class_errors={"a": 0.0, "b": 0.0}, confusion=[[3, 0], [0, 3]])
    few = Result(**{**RESULT, "val_error": 0.0, "validation": scores})
    assert "0.00 %: 0 of 6 (95 % interval 0.0 to 39.0 %)" in render(tables.build_result_table(few, "few"))


def test_the_balanced_error_of_a_run():
    scores = Scores(error=10.0, class_errors={"a": 50.0, "b": 0.0}, confusion=[[1, 1], [0, 8]])
    text = render(tables.build_result_table(Result(**RESULT, test=scores), "uneven"))
    assert "balanced error │ 25.00 %" in " ".join(text.split())


def test_the_result_of_a_run():
    text = render(tables.build_result_table(Result(**RESULT), "mine[/b], vat"))
    for words in (
        "mine[/b], vat",
        "1.25 %",
        "none",
        "2.00 × 10⁻³",
        "0.100 ≤ 0.500 + 0.250",
        "50, 1247",
        "1000 images/s",
    ):
        assert words in text
    unknown = Result(**(RESULT | {"bound": None, "mmd2": None, "test_error": None}))
    text = render(tables.build_result_table(unknown, "mine"))
    assert "risk gap" not in text
    assert "2.00" not in text


def test_names_of_classes_are_not_markup():
    errors = {"[red]x": 10.0, "[/b]": None, ":smile:": 0.0}
    scores = Scores(error=12.5, class_errors=errors, confusion=[[3, 0, 1], [0, 0, 0], [0, 0, 3]])
    text = render(tables.build_evaluation_table(Evaluation(Path("runs/[/a]"), "d[bold]", scores)))
    text = " ".join(text.split())
    for words in (
        *errors,
        "runs/[/a] on 7 images of d[bold]",
        "4 │ 10.00 %",
        "0 │ │",
        "12.50 %",
        "(mean of the classes) │ │ 12.50 %",
    ):
        assert words in text


def test_the_catalogue():
    (table,) = tables.build_catalogue_tables({"nets": {"small": "A [net]."}})
    assert "A [net]." in render(table)


def test_control_characters_are_written_out(capsys):
    console.print_result("a\x1b[31mb")
    console.print_note("c\rd")
    assert capsys.readouterr() == ("a\\x1b[31mb\n", "Note: c\\rd\n")
