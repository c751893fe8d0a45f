"""Progress on standard error, on a terminal and in a file."""

import pytest
from rich.console import Console

from afda.cli import console, progress
from afda.recipe import Recipe
from afda.registry import Metric
from afda.runs.log import LogLine

PLAIN = Recipe.of({"data": "digits", "labels": 50, "net": "small", "method": ["supervised"], "steps": 100})
ALIGNED = PLAIN.with_settings(["method=vat+entropy", "align=adversarial"])
SHORT = {"step": 10, "supervised": 1.5, "learning_rate": 0.1, "seconds": 2.0}
LONG = SHORT | {"consistency": 0.25, "entropy": 0.5, "alignment": -1.25, "discriminator_accuracy": 0.75, "mu": 0.1}
EVALUATED = {"step": 20, "seconds": 4.0, "mmd2": 0.0123, "val_error": 12.34, "bound": None}


@pytest.fixture(params=[False, True], ids=["file", "terminal"])
def screen(request, monkeypatch):
    """Standard error as a file or as a terminal, recorded."""
    recorded = Console(
        stderr=True, soft_wrap=True, markup=False, emoji=False, force_terminal=request.param, width=200, record=True
    )
    monkeypatch.setattr(console, "err", recorded)
    return recorded


def format_line(line, recipe):
    return progress.format_line(LogLine.from_dict(line), recipe)


def test_a_line_without_alignment():
    words = format_line(SHORT, PLAIN)
    assert words == f"supervised 1.500 · {PLAIN.labelled_batch * 10 / 2:.0f} img/s"


def test_a_line_with_alignment():
    words = format_line(LONG | EVALUATED, ALIGNED)
    for part in ("supervised 1.500", "consistency 0.250", "entropy 0.500", "alignment -1.250"):
        assert part in words
    assert not [part for part in ("learning", "mu 0", "step", "seconds") if part in words]
    assert words.endswith(f"{(ALIGNED.labelled_batch + ALIGNED.unlabelled_batch) * 20 / 4:.0f} img/s")


def test_a_declared_metric_is_shown_with_its_label_and_unit(monkeypatch):
    declared = {"mask_rate": Metric(name="mask_rate", label="mask", description="", unit="share")}
    monkeypatch.setattr(progress, "describe_metrics", lambda recipe: declared)
    assert "mask 25%" in format_line(SHORT | {"mask_rate": 0.25}, PLAIN)


def test_a_number_that_nobody_declared_is_shown_too():
    assert "contrastive loss 0.250" in format_line(SHORT | {"contrastive_loss": 0.25}, PLAIN)


def test_what_is_not_defined_is_not_shown():
    words = format_line(LONG | EVALUATED | {"mmd2": None, "val_error": None}, ALIGNED)
    assert "mmd" not in words.lower()
    assert "val" not in words


@pytest.mark.parametrize(("recipe", "line"), [(PLAIN, SHORT), (ALIGNED, LONG)])
def test_the_progress_of_a_training(screen, recipe, line, capsys):
    with progress.TrainingProgress(recipe) as shown:
        for step in (10, 50, 100):
            shown.update(LogLine.from_dict(line | EVALUATED | {"step": step}))
    text = screen.export_text()
    if screen.is_terminal:
        assert recipe.title in text
        assert "100/100" in text
    else:
        assert [row.split(" ·")[0] for row in text.splitlines()] == ["step 10/100", "step 100/100"]
        assert all(row.endswith("s left") for row in text.splitlines())
    assert capsys.readouterr().out == ""


def test_a_continued_training_and_its_warning(screen):
    with progress.TrainingProgress(PLAIN, step=40) as shown:
        shown.update(LogLine(step=50, seconds=1.0, values={"supervised": 1.0}, warning="It went wrong."))
    text = screen.export_text()
    assert "Continuing after 40 of 100 updates." in text
    assert "Warning: after 50 updates: It went wrong." in text


def test_the_bar_for_decoding_appears_on_a_terminal_only(screen):
    with progress.DecodingProgress() as bar:
        bar.update(1, 2)
        bar.update(2, 2)
    assert ("decoding images" in screen.export_text()) == screen.is_terminal


def test_a_counter_appears_on_a_terminal_only(screen):
    with progress.count_progress("images") as count:
        count(1234)
    with progress.count_progress("images", quiet=True) as count:
        count(99)
    assert "99" not in screen.export_text(clear=False)
    assert ("images" in screen.export_text()) == screen.is_terminal
