"""A training from Python, as the command line does it."""

import threading

import numpy as np
import pytest

from afda.errors import UserError
from afda.runs.directory import Run
from afda.training.request import TrainRequest
from afda.training.session import TrainCallbacks, TrainingStopped, run_training
from small_runs import read_weights

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
    callbacks["on_compare"] = lambda selection, *_: compared.append([one.name for one in selection.candidates])
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


# The automatic choice


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Vectors of two classes that overlap a little: 16 labels, 60 without."""
    random = np.random.default_rng(0)
    y = np.arange(76) % 2
    x = random.normal(size=(76, 4)) + 1.5 * y[:, None]
    path = tmp_path_factory.mktemp("vectors") / "vectors.npz"
    np.savez(path, x=x, y=np.where(np.arange(76) < 16, y, -1))
    return str(path)


def ask_automatic(vectors, out, **options):
    """Return a request without a method whose trainings take milliseconds."""
    tiny = ("net.hidden=8", "net.features=4", "align.hidden=8", "labelled_batch=8", "unlabelled_batch=8")
    return TrainRequest(vectors, out=out, **{"steps": 12, "threads": 1, "settings": tiny} | options)


def list_trials(path):
    """Return the trials of a run's candidates, without their times."""
    selection = Run(path).read_selection()
    return {one.name: [(trial.fold, trial.logits, trial.pool) for trial in one.trials] for one in selection.candidates}


@pytest.fixture(scope="module")
def automatic(vectors, tmp_path_factory):
    """The outcome of an automatic run."""
    return run_training(ask_automatic(vectors, tmp_path_factory.mktemp("automatic") / "run"))


def test_an_automatic_run(automatic):
    run, selection = Run(automatic.path), automatic.selection
    assert [one.name for one in selection.candidates if not one.uses_unlabelled] == ["supervised"]
    assert {"afda", "vat"} <= set(list_trials(run.path))
    assert all(trials for trials in list_trials(run.path).values())
    assert selection == run.read_selection()
    assert automatic.recipe == run.read_recipe() == selection.read_chosen()
    assert automatic.result.labels == 16
    logits, y = selection.collect_held_out()
    assert automatic.result.cross_validation.error == 100 * (logits.argmax(1) != y).double().mean().item()
    assert automatic.result.temperature == run.read_model_card().temperature != 1
    printed = automatic.to_json()
    assert printed["selection"] == selection.summarise()
    assert printed["verdict"] == automatic.verdict == selection.judge().sentence
    assert "baseline" not in printed


def test_an_automatic_run_that_was_stopped_ends_as_if_it_was_not(automatic, vectors, tmp_path):
    stop, done, out = threading.Event(), [], tmp_path / "run"

    def stop_soon(trial):
        done.append(trial.candidate)
        if trial.done == 3:
            stop.set()

    with pytest.raises(TrainingStopped, match=r"stopped after 3 trials; continue with: afda train .* --resume"):
        run_training(ask_automatic(vectors, out), callbacks=TrainCallbacks(on_trial=stop_soon), stop=stop)
    assert not (out / "recipe.json").exists()
    assert sum(map(len, list_trials(out).values())) == 3
    with pytest.raises(UserError, match="already exists; add --resume"):
        run_training(ask_automatic(vectors, out))
    # The options that it was started with are kept.
    callbacks = TrainCallbacks(on_trial=lambda trial: done.append(trial.candidate))
    resumed = run_training(TrainRequest(vectors, out=out, resume=True), callbacks=callbacks)
    assert list_trials(out) == list_trials(automatic.path)
    assert len(done) == sum(map(len, list_trials(out).values()))
    assert (resumed.recipe, resumed.selection.reason) == (automatic.recipe, automatic.selection.reason)
    assert read_weights(Run(out)) == read_weights(Run(automatic.path))
    again = run_training(TrainRequest(vectors, out=out, resume=True))
    assert again.was_finished
    assert again.to_json() == resumed.to_json()


def test_a_stopped_comparison_keeps_its_options_and_its_data(vectors, tmp_path):
    out, stop = tmp_path / "run", threading.Event()
    data = tmp_path / "mine.npz"
    arrays = dict(np.load(vectors))
    np.savez(data, **arrays, x_test=arrays["x"][:20] + 1e-3, y_test=np.arange(20) % 2)
    callbacks = TrainCallbacks(on_trial=lambda _: stop.set())
    with pytest.raises(TrainingStopped):
        run_training(
            ask_automatic(str(data), out, no_test=True, baseline=True, precision="bfloat16"),
            callbacks=callbacks,
            stop=stop,
        )
    np.savez(data, x=arrays["x"] + 1, y=arrays["y"])
    with pytest.raises(UserError, match="have changed since it was started"):
        run_training(TrainRequest(str(data), out=out, resume=True))
    np.savez(data, **arrays, x_test=arrays["x"][:20] + 1e-3, y_test=np.arange(20) % 2)
    outcome = run_training(TrainRequest(str(data), out=out, resume=True))
    assert outcome.result.test_error is None
    assert Run(out).read_environment().precision == "bfloat16"
    assert (outcome.baseline is not None) == outcome.recipe.uses_unlabelled


def test_an_automatic_run_is_replaced_if_asked_for(automatic, vectors, tmp_path):
    out = tmp_path / "run"
    run_training(ask_automatic(vectors, out))
    (out / "labels.csv").write_text("of the user")
    before = {path: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(UserError, match="already exists; add --resume"):
        run_training(ask_automatic(vectors, out, seed=1))
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    outcome = run_training(ask_automatic(vectors, out, seed=1, overwrite=True))
    assert outcome.recipe.seed == 1
    assert outcome.recipe == outcome.selection.read_chosen() == Run(out).read_recipe()
    assert list_trials(out) != list_trials(automatic.path)
    named = run_training(ask_automatic(vectors, out, method="vat", baseline=False, overwrite=True))
    assert (named.selection, named.verdict, named.recipe.title) == (None, None, "vat-adversarial")
    assert (out / "labels.csv").read_text() == "of the user"


def test_a_stopped_comparison_is_replaced_by_a_named_method(vectors, tmp_path):
    stop = threading.Event()
    callbacks = TrainCallbacks(on_trial=lambda _: stop.set())
    with pytest.raises(TrainingStopped):
        run_training(ask_automatic(vectors, tmp_path / "run"), callbacks=callbacks, stop=stop)
    named = ask_automatic(vectors, tmp_path / "run", method="vat", baseline=False, overwrite=True)
    assert run_training(named).selection is None


def test_an_automatic_choice_takes_one_process_and_a_directory_of_its_own(vectors, tmp_path):
    with pytest.raises(UserError, match="--method auto compares methods in one process; name a --method, or leave out"):
        run_training(ask_automatic(vectors, tmp_path / "run", processes=2))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("work")
    for overwrite in (False, True):
        with pytest.raises(UserError, match="is not the directory of a run, so it is left alone"):
            run_training(ask_automatic(vectors, tmp_path / "thesis", overwrite=overwrite))
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter"]
    assert not (tmp_path / "run").exists()


def test_labels_that_a_setting_keeps_leave_a_pool(few, tmp_path):
    light = (*LIGHT, "labels=20")
    outcome = run_training(TrainRequest(str(few), settings=light, steps=2, threads=1, out=tmp_path / "run"))
    assert any(one.uses_unlabelled for one in outcome.selection.candidates)
    assert outcome.result.labels == 20
