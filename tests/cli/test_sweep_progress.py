"""The progress of a sweep on standard error, on a terminal and in a file."""

import pytest
from test_progress import ALIGNED, LONG, PLAIN, screen  # noqa: F401 - a fixture
from test_tables import RESULT, render

from afda.cli import console, sweep_progress
from afda.experiments.sweep import make_jobs, seconds_left
from afda.runs.directory import open_run
from afda.runs.log import LogLine
from afda.runs.schemas import Result


@pytest.fixture
def jobs(tmp_path):
    """Three runs: one finished before, one under way, one failed."""
    made = make_jobs([PLAIN, ALIGNED, PLAIN.with_settings(["seed=1"])], tmp_path, "digits")
    runs = [open_run(job.run.path, job.recipe) for job in made]
    runs[0].write_json("result.json", Result(**RESULT))
    made[0].found_finished = True
    runs[1].log.append(LogLine.from_dict(LONG))
    made[0].state, made[1].state, made[2].state = "done", "running", "failed"
    made[2].problem = "[red]a problem[/x]"
    return made


def test_a_sweep_is_a_table_on_a_terminal_and_lines_in_a_file(screen, jobs):  # noqa: F811
    with sweep_progress.follow_sweep("a [bold]title[/]") as update:
        update(jobs)
        update(jobs)
    text = screen.export_text()
    summary = sweep_progress.summarise_jobs(jobs)
    assert summary.startswith("1 of 3 runs done, about ")
    if screen.is_terminal:
        table = render(sweep_progress.build_sweep_table(jobs, "a [bold]title[/]"))
        for words in ("a [bold]title[/]", "10/100", "alignment -1.250", "[red]a problem[/x]"):
            assert words in table
    else:
        assert text.splitlines() == [
            "3 runs, 1 of them finished before.",
            f"supervised-50-seed1: failed ([red]a problem[/x]); {summary}",
        ]


def test_a_sweep_in_a_file_reports_from_time_to_time(jobs, monkeypatch, capsys):
    monkeypatch.setattr(sweep_progress, "SWEEP_SECONDS", -1.0)
    monkeypatch.setattr(console, "err", type(console.err)(stderr=True, soft_wrap=True, force_terminal=False))
    with sweep_progress.follow_sweep("a title") as update:
        update(jobs[1:2])
    assert f"{jobs[1].run.path.name} 10/100; 0 of 1 runs done" in capsys.readouterr().err


def test_a_stopped_sweep_says_how_to_continue(screen, jobs):  # noqa: F811
    def run():
        with sweep_progress.follow_sweep("a title") as update:
            update(jobs[1:])
            raise KeyboardInterrupt

    with pytest.raises(SystemExit, match="130"):
        run()
    assert "Note: stopped with 0 of 2 runs done. Repeat the command to continue." in screen.export_text()


def test_the_time_left_counts_runs_that_have_just_begun(tmp_path):
    made = make_jobs([PLAIN, PLAIN.with_settings(["seed=1"])], tmp_path, "digits")
    open_run(made[0].run.path, made[0].recipe).write_json("result.json", Result(**RESULT))
    made[0].state, made[1].state = "done", "running"
    assert seconds_left(made) == RESULT["seconds"]


def test_durations():
    assert [sweep_progress.format_duration(s) for s in (30, 600, 9000)] == ["30 s", "10 min", "2.5 h"]
