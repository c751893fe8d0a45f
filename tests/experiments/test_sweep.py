import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from afda.cli.sweep_progress import follow_sweep
from afda.data import load
from afda.errors import UserError
from afda.experiments.sweep import LocalProcesses, make_jobs, sweep
from afda.recipes import recipe
from afda.runs.directory import open_run
from afda.runs.log import LogLine

SMALL = ["labels=12", "labelled_batch=4", "unlabelled_batch=8", "steps=6", "net.hidden=8", "net.features=4"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "mine.npz"
    noise = np.random.default_rng(0)
    y = np.arange(60) % 3
    np.savez(path, x=noise.normal(size=(60, 5)) + y[:, None], y=y)
    return path


@pytest.fixture(scope="module")
def recipes(data):
    made = recipe("own-vectors", load(str(data)), "supervised", "none").with_settings(SMALL)
    return [made.with_settings([f"seed={seed}"]) for seed in (0, 1)]


def ended(states):
    *_, last = states
    return last


def results(folder):
    """Everything but the time that it took."""
    found = {}
    for path in sorted(folder.iterdir()):
        result = json.loads((path / "result.json").read_text())
        result = {k: v for k, v in result.items() if k not in ("seconds", "images_per_second")}
        found[path.name] = (result, (path / "model.safetensors").read_bytes())
    return found


def test_order_and_number_at_once_do_not_matter(data, recipes, tmp_path):
    done = ended(sweep(make_jobs(recipes, tmp_path / "a", str(data)), at_once=1))
    assert [(job.state, job.problem, job.process) for job in done] == [("done", "", None)] * 2
    ended(sweep(make_jobs(recipes[::-1], tmp_path / "b", str(data)), at_once=2))
    assert results(tmp_path / "a") == results(tmp_path / "b")
    assert sorted(results(tmp_path / "a")) == ["supervised-12-seed0", "supervised-12-seed1"]

    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "a").rglob("*")}
    again = make_jobs(recipes, tmp_path / "a", str(data))
    assert [job.state for job in again] == ["done", "done"]
    assert ended(sweep(again)) is again
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "a").rglob("*")} == before

    longer = [made.with_settings(["steps=7"]) for made in recipes]
    with pytest.raises(UserError, match=r"is a run of another recipe \(steps: 6 there, 7 now\); choose another --out"):
        make_jobs(longer, tmp_path / "a", str(data))


def test_each_run_has_a_gpu_of_its_own(recipes, tmp_path, monkeypatch):
    """There is none here, so what stands in for `python -m afda` says which one it was given, and waits for its end."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho $CUDA_VISIBLE_DEVICES >&2\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    here, started = LocalProcesses(), []
    assert (here.slots(1), here.device) == (2, "cuda")

    def launched(seed):
        run = open_run(tmp_path / str(seed), recipes[0].with_settings([f"seed={seed}"]))
        started.append(here.launch(run, "mine", 1, ()))
        return started[-1].stderr.readline().strip()

    try:
        with ThreadPoolExecutor(4) as at_once:  # as a search does
            assert sorted(at_once.map(launched, range(4))) == ["5", "5", "7", "7"]
        for process in started[:2]:
            process.terminate()
            process.wait()
        launched(4)
        launched(5)
        assert sorted(gpu for gpu, _ in here.on_gpus) == ["5", "5", "7", "7"]
    finally:
        for process in started:
            process.terminate()
            process.communicate()


@pytest.mark.parametrize(
    ("device", "asked", "given"),
    [("cpu", "auto", "float32"), ("cpu", "bfloat16", "bfloat16"), ("cuda", "auto", "auto")],
)
def test_runs_that_are_compared_have_one_precision(recipes, tmp_path, monkeypatch, device, asked, given):
    """On a CPU `auto` would take bfloat16 for some methods only; a GPU takes it for all."""
    launched = []
    monkeypatch.setattr(LocalProcesses, "device", device)

    class Nowhere(LocalProcesses):
        def launch(self, run, data, threads, options):
            launched.append(options)
            raise UserError("Not begun.")

    todo = make_jobs(recipes, tmp_path, "mine")
    todo[0].options = ("--no-test",)
    assert [job.state for job in ended(sweep(todo, machines=Nowhere(), precision=asked))] == ["failed"] * 2
    assert launched == [("--no-test", "--precision", given), ("--precision", given)]


def test_one_failing_job_does_not_stop_the_rest(data, recipes, tmp_path, capsys):
    diverging = recipes[0].with_settings(["optimisation.learning_rate=1e36", "seed=2"])
    todo = make_jobs([diverging, recipes[0], recipes[1]], tmp_path / "runs", str(data))
    held = open_run(todo[1].run.path, recipes[0])  # in use by this process
    for done in sweep(todo, at_once=2):
        if [job.state for job in done] == ["failed", "waiting", "done"]:
            held.unlock()  # nobody waited for it but its own job
    assert [job.state for job in done] == ["failed", "done", "done"]
    assert "Try a lower learning rate" in done[0].problem
    assert not any(job.problem.startswith("Error: ") for job in done)
    with follow_sweep("a sweep") as update:
        update(done)
    shown = capsys.readouterr().err
    assert f"supervised-12-seed2: failed ({done[0].problem})" in shown
    assert "supervised-12-seed1: done" in shown


def test_a_stopped_sweep_stops_its_runs_and_goes_on_later(data, recipes, tmp_path):
    long = [made.with_settings(["steps=50000"]) for made in recipes]
    todo = make_jobs(long, tmp_path / "long", str(data))
    states = sweep(todo, at_once=2)
    next(states)
    processes = [job.process for job in todo]
    assert all(isinstance(p, subprocess.Popen) for p in processes)
    while not all((job.run.path / "checkpoint.pt").exists() for job in todo):
        assert all(p.poll() is None for p in processes)
        time.sleep(0.05)
    states.close()
    assert [p.returncode for p in processes] == [130, 130]
    assert [(job.state, job.process, job.run.finished) for job in todo] == [("waiting", None, False)] * 2
    steps = [job.run.read_checkpoint()["step"] for job in todo]

    again = make_jobs(long, tmp_path / "long", str(data))
    assert [job.state for job in again] == ["waiting", "waiting"]
    job, step = again[0], steps[0]
    job.start(threads=1)
    assert job.state == "running"
    while job.latest.step <= step and job.process.poll() is None:
        time.sleep(0.05)
    job.process.terminate()
    job.stop()
    assert job.run.log.read()[0].step == 500  # the log goes on, too
    assert job.run.read_checkpoint()["step"] > step


def test_nothing_to_do(tmp_path):
    assert ended(sweep([])) == []


def test_the_newest_line(recipes, tmp_path):
    (job,) = make_jobs(recipes[:1], tmp_path, "digits")
    assert job.latest == LogLine(step=0)
    run = open_run(job.run.path, recipes[0])
    run.log.append(LogLine(step=5))
    assert job.latest == LogLine(step=5)
