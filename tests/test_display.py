import pytest
from rich.console import Console

from afda import display
from afda.recipe import Recipe
from afda.runs import open_run
from afda.sweep import jobs

PLAIN = Recipe.of({"data": "digits", "labels": 50, "net": "small", "method": ["supervised"], "steps": 100})
ALIGNED = PLAIN.with_settings(["method=vat+entropy", "align=adversarial"])
SHORT = {"step": 10, "supervised": 1.5, "learning_rate": 0.1, "seconds": 2.0}
LONG = SHORT | {"consistency": 0.25, "entropy": 0.5, "alignment": -1.25, "discriminator_accuracy": 0.75, "mu": 0.1}
TRACED = {"step": 20, "seconds": 4.0, "mmd2": 0.0123, "val_error": 12.34, "bound": None}
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


@pytest.fixture(params=[False, True], ids=["lines", "terminal"])
def console(request, monkeypatch):
    """Standard error as a file or as a terminal, recorded."""
    made = Console(
        stderr=True, soft_wrap=True, markup=False, emoji=False, force_terminal=request.param, width=200, record=True
    )
    monkeypatch.setattr(display, "err", made)
    return made


def shown(table, width=200):
    console = Console(width=width, markup=display.out._markup, emoji=display.out._emoji)
    with console.capture() as found:
        console.print(table)
    return found.get()


def test_news_without_alignment():
    words = display.news(SHORT, PLAIN)
    assert words.startswith("supervised 1.500")
    assert words.endswith(f"{PLAIN.labelled_batch * 10 / 2:.0f} img/s")
    assert not [word for word in ("alignment", " · d ", "MMD", "error", "consistency") if word in words]


def test_news_with_alignment():
    words = display.news(LONG | TRACED, ALIGNED)
    for part in ("supervised 1.500", "consistency 0.250", "entropy 0.500", "alignment -1.250", "d 75%", "error 12.3 %"):
        assert part in words
    assert "MMD² 12.3e-3" in words
    assert words.endswith(f"{(ALIGNED.labelled_batch + ALIGNED.unlabelled_batch) * 20 / 4:.0f} img/s")


def test_news_of_what_is_unknown():
    words = display.news(LONG | TRACED | {"mmd2": None, "val_error": None}, ALIGNED)
    assert "MMD" not in words
    assert "val" not in words


@pytest.mark.parametrize(("recipe", "line"), [(PLAIN, SHORT), (ALIGNED, LONG)])
def test_follow(console, recipe, line, capsys):
    taken = []
    lines = (taken.append(step) or line | TRACED | {"step": step} for step in (10, 50, 100))
    display.follow(lines, recipe, 0, quiet=False)
    assert taken == [10, 50, 100]
    text = console.export_text()
    if console.is_terminal:
        assert recipe.title in text
        assert "100/100" in text
    else:
        assert [row.split(" ·")[0] for row in text.splitlines()] == ["step 10/100", "step 100/100"]
        assert all(row.endswith("s left") for row in text.splitlines())
    assert capsys.readouterr().out == ""


def test_quiet(console, capsys):
    display.follow(iter([SHORT]), PLAIN, 0, quiet=True)
    assert console.export_text() == ""
    assert capsys.readouterr() == ("", "")


def test_following_jobs(console, tmp_path):
    todo = jobs([PLAIN, ALIGNED, PLAIN.with_settings(["seed=1"])], tmp_path, "digits")
    runs = [open_run(job.run.path, job.recipe) for job in todo]
    runs[0].write_json("result.json", RESULT)
    todo[0].found_finished = True
    runs[1].append_log(LONG)
    todo[0].state, todo[1].state, todo[2].state = "done", "running", "failed"
    todo[2].problem = "[red]a problem[/x]"
    assert display.follow_jobs(iter([todo, todo]), "a [bold]title[/]") is todo
    text = console.export_text()
    if console.is_terminal:
        table = shown(display.progress_table(todo, "a [bold]title[/]"))
        assert "a [bold]title[/]" in table
        assert "10/100" in table
        assert "alignment -1.250" in table
        assert "[red]a problem[/x]" in table
    else:
        assert text.splitlines() == [
            "3 runs, 1 of them finished before.",
            f"supervised-50-seed1: failed ([red]a problem[/x]); {display.so_far(todo)}",
        ]
        assert display.so_far(todo).startswith("1 of 3 runs done, about ")


def test_a_sweep_in_a_file_is_not_silent_for_long(tmp_path, monkeypatch, capsys):
    todo = jobs([ALIGNED], tmp_path, "digits")
    open_run(todo[0].run.path, ALIGNED).append_log(LONG)
    todo[0].state = "running"
    monkeypatch.setattr(display, "SILENCE", -1.0)
    monkeypatch.setattr(display, "err", Console(stderr=True, soft_wrap=True, force_terminal=False))
    display.follow_jobs(iter([todo]), "a title")
    assert f"{todo[0].run.path.name} 10/100; 0 of 1 runs done" in capsys.readouterr().err


def test_a_stopped_sweep_says_how_to_go_on(console, tmp_path, capsys):
    todo = jobs([PLAIN, ALIGNED], tmp_path, "digits")

    def states():
        yield todo
        raise KeyboardInterrupt

    with pytest.raises(SystemExit, match="130"):
        display.follow_jobs(states(), "a title")
    assert "stopped with 0 of 2 runs done; the same command continues" in capsys.readouterr().err


def test_the_time_left_counts_runs_that_have_just_begun(tmp_path):
    todo = jobs([PLAIN, PLAIN.with_settings(["seed=1"])], tmp_path, "digits")
    open_run(todo[0].run.path, todo[0].recipe).write_json("result.json", RESULT)
    todo[0].state, todo[1].state = "done", "running"
    assert display.seconds_left(todo) == RESULT["seconds"]


def test_an_error_says_of_how_many_images_it_is():
    few = {**RESULT, "val_error": 0.0, "validation": {"confusion": [[3, 0], [0, 3]]}}
    assert "0.00 %: 0 of 6 (95 % interval 0.0 to 39.0 %)" in shown(display.result_table(few, "few"))


def test_result_table():
    text = shown(display.result_table(RESULT, "mine[/b], vat"))
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
    unknown = shown(display.result_table(RESULT | {"bound": None, "mmd2": None, "test_error": None}, "mine"))
    assert "risk gap" not in unknown
    assert "2.00" not in unknown


def test_names_of_classes_are_text():
    errors = {"[red]x": 10.0, "[/b]": None, ":smile:": 0.0}
    result = {"run": "runs/[/a]", "data": "d[bold]", "images": 7, "class_errors": errors, "error": 12.5}
    result["confusion"] = [[3, 0, 1], [0, 0, 0], [0, 0, 3]]
    text = " ".join(shown(display.evaluation_table(result)).split())
    for words in (*errors, "runs/[/a] on 7 images of d[bold]", "4 │ 10.00 %", "0 │ │", "12.50 %"):
        assert words in text


def test_catalogue():
    (table,) = display.catalogue_tables({"nets": {"small": "A [net]."}})
    assert "A [net]." in shown(table)


def test_complain(capsys):
    display.complain("[red]stopped.")
    assert capsys.readouterr() == ("", "afda: [red]stopped.\n")
