"""A training from Python, as the command line does it."""

import threading

import pytest

from afda.errors import UserError
from afda.runs.directory import Run
from afda.training.request import TrainRequest
from afda.training.session import TrainCallbacks, TrainingStopped, run_training

LIGHT = ("net=mlp", "net.hidden=16", "net.features=8", "align.hidden=8", "labelled_batch=4", "unlabelled_batch=8")


@pytest.fixture
def request_in(few, tmp_path):
    """A light training of 20 labels, with more options."""

    def make(**options):
        options = {"method": "vat+entropy", "steps": 20, "threads": 1, "out": tmp_path / "run"} | options
        return TrainRequest(str(few), labels=20, settings=LIGHT, **options)

    return make


def test_a_run_with_its_baseline(request_in):
    starts, lines = [], []
    compared, callbacks = [], {"on_start": starts.append, "on_log": lines.append}
    callbacks["on_compare"] = lambda selection, notes: compared.append([one.name for one in selection.candidates])
    outcome = run_training(request_in(baseline=True), callbacks=TrainCallbacks(**callbacks))
    assert outcome.path == request_in().out
    assert outcome.result == Run(outcome.path).read_result()
    assert [(start.is_baseline, start.step) for start in starts] == [(False, 0), (True, 0)]
    assert compared == [["supervised", "vat+entropy-adversarial"]]
    assert outcome.selection.chosen == "vat+entropy-adversarial" == outcome.recipe.title
    assert [line.step for line in lines] == [*range(1, 21), *range(1, 21)]
    printed = outcome.to_json()
    assert set(printed["baseline"]) == {"test_error", "val_error", "balanced_error", "mmd2", "seconds"}
    assert printed["verdict"] == outcome.verdict
    assert not outcome.was_finished
    again = run_training(request_in(resume=True))
    assert again.was_finished
    assert again.to_json() == printed


def test_a_run_alone_says_what_it_uses(request_in):
    starts = []
    outcome = run_training(request_in(baseline=False), callbacks=TrainCallbacks(on_start=starts.append))
    assert any(note.startswith("using recipe own-images.") for note in starts[0].notes)
    assert (outcome.selection, outcome.baseline, outcome.verdict) == (None, None, None)


def test_a_callback_that_raises_stops_the_training_and_it_can_be_resumed(request_in):
    def fail(line):
        if line.step == 5:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_training(request_in(baseline=False), callbacks=TrainCallbacks(on_log=fail))
    assert not Run(request_in().out).finished
    assert run_training(request_in(resume=True)).result.steps == 20


def test_a_stopped_training_says_how_to_continue_and_keeps_its_options(request_in):
    stop = threading.Event()
    callbacks = TrainCallbacks(on_log=lambda line: stop.set() if line.step == 7 else None)
    with pytest.raises(TrainingStopped, match=r"stopped after 7 of 20 updates; continue with: afda train .* --resume"):
        run_training(request_in(baseline=False, no_test=True), callbacks=callbacks, stop=stop)
    starts = []
    request = TrainRequest(request_in().data, out=request_in().out, resume=True)
    outcome = run_training(request, callbacks=TrainCallbacks(on_start=starts.append))
    assert [start.step for start in starts] == [7]
    assert (outcome.result.test_error, outcome.baseline, outcome.result.labels) == (None, None, 20)


def test_the_data_of_a_resumed_run_must_be_the_same(request_in):
    run_training(request_in(steps=1, baseline=False))
    with pytest.raises(UserError, match=r"The run in .* is of 'few', not of 'digits'"):
        run_training(TrainRequest("digits", out=request_in().out, resume=True))


@pytest.mark.soak
def test_two_processes_from_python(request_in):
    alone = run_training(request_in(baseline=False))
    both = run_training(request_in(baseline=False, processes=2, overwrite=True))
    assert both.result.steps == alone.result.steps == 20
    assert Run(both.path).read_environment().processes == 2


def test_a_run_in_its_default_directory_is_resumed_with_its_options(request_in, tmp_path, monkeypatch):
    """The test set that `--no-test` left sealed stays so."""
    monkeypatch.chdir(tmp_path)
    stop = threading.Event()
    callbacks = TrainCallbacks(on_log=lambda line: stop.set() if line.step == 7 else None)
    with pytest.raises(TrainingStopped):
        run_training(request_in(out=None, baseline=False, no_test=True), callbacks=callbacks, stop=stop)
    outcome = run_training(request_in(out=None, resume=True))
    assert (outcome.result.test_error, outcome.baseline) == (None, None)
