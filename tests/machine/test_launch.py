"""Launching the processes of a training: workers of `--processes`, torchrun, and what happens when one is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from afda.errors import UserError
from afda.machine import launch
from afda.runs.directory import Run


def command(out, *options):
    small = ["--set", "net=mlp", "--set", "align.hidden=8", "--method", "pi-model", "--threads", "1"]
    return ["train", "digits", *small, "--out", str(out), *map(str, options)]


def start(*arguments):
    command = [sys.executable, "-m", "afda", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_step(process, run, step):
    while process.poll() is None and not any(line.step >= step for line in run.log.read()):
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()


def list_children(process):
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def list_steps(run):
    return [line.step for line in run.log.read()]


def assert_equal_logs(run, other):
    """Check that two logs are equal up to float32 rounding."""
    for one, two in zip(run.log.read(), other.log.read(), strict=True):
        for name in ("supervised", "consistency", "alignment", "discriminator_accuracy"):
            assert two.values[name] == pytest.approx(one.values[name], rel=0.02, abs=0.02), (one.step, name)


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")


@needs_proc
def test_a_killed_worker_stops_the_run_which_resumes_with_one_process(afda, tmp_path):
    run = Run(tmp_path / "run")
    with start(*command(run.path, "--steps", 100, "--processes", 2)) as process:
        wait_for_step(process, run, 10)
        (worker,) = list_children(process)
        os.kill(worker, signal.SIGKILL)
        _, stderr = process.communicate()
    assert process.returncode == 1
    last = stderr.splitlines()[-1]
    assert last.startswith("Error: Training stopped: process 1 of 2 was killed by signal 9; continue with: afda train ")
    assert last.endswith(" --resume --processes 2")
    assert "Traceback" not in stderr
    assert not run.finished
    code, _, _ = afda("train", "digits", "--out", run.path, "--resume", "--quiet", "--threads", 1)
    assert code == 0
    assert list_steps(run) == list(range(1, 101))
    assert not list(run.path.glob("*.pt"))
    assert run.read_environment().processes == 2


def test_torchrun_gives_one_log_and_one_result(afda, tmp_path):
    arguments = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "afda"]
    options = ["--steps", 20, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", *arguments, *command(tmp_path / "two", *options)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    two = Run(tmp_path / "two")
    assert json.loads(done.stdout) == {
        "run": str(two.path),
        **json.loads((two.path / "result.json").read_text()),
    }  # printed by rank 0 only
    assert two.read_environment().processes == 2
    assert list_steps(two) == list(range(1, 21))
    assert afda(*command(tmp_path / "one", *options))[0] == 0
    assert_equal_logs(Run(tmp_path / "one"), two)


@needs_proc
def test_no_thread_of_the_group_outlives_it(tmp_path):
    script = """
import os, sys, torch
from pathlib import Path
from afda.machine.group import Group, join_group, leave_group
def list_threads():
    return [Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in os.listdir("/proc/self/task")]
join_group(0, 1, torch.device("cpu"), sys.argv[1])
assert any("gloo" in name for name in list_threads())
import torch.distributed.nn.functional, torch._dynamo
leave_group(Group(0, 2))
assert not any("gloo" in name for name in list_threads()), list_threads()
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "rendezvous")], check=True, timeout=120)


@needs_proc
@pytest.mark.soak
def test_a_run_resumes_with_another_number_of_processes(tmp_path):
    run = Run(tmp_path / "run")
    again = ["train", "digits", "--out", str(run.path), "--resume", "--threads", "1"]
    for number, first in ((signal.SIGINT, True), (signal.SIGTERM, False)):  # a signal to any process stops all
        resumed = (run.path / "recipe.json").exists()
        with start(*(again if resumed else command(run.path, "--steps", 300)), "--processes", "2") as process:
            wait_for_step(process, run, 60 if resumed else 20)
            (worker,) = list_children(process)
            os.kill(process.pid if first else worker, number)
            _, stderr = process.communicate()
        assert process.returncode == 130
        assert "continue with: afda train digits" in stderr
    reached = run.read_checkpoint()["step"]
    assert reached >= 60
    with start(*again, "--processes", "4") as process:
        wait_for_step(process, run, 120)
        os.kill(list_children(process)[1], signal.SIGKILL)
        assert "process 2 of 4 was killed by signal 9" in process.communicate()[1]
    with start(*again, "--processes", "2") as process:
        wait_for_step(process, run, 200)
        (worker,) = list_children(process)
        process.kill()  # the workers end with rank 0
    while os.path.exists(f"/proc/{worker}") and "Z" not in Path(f"/proc/{worker}/stat").read_text().split()[2]:
        time.sleep(0.1)
    assert run.read_checkpoint()["step"] == reached
    with start(*again) as process:
        process.communicate()
    assert process.returncode == 0
    assert list_steps(run) == list(range(3, 301, 3))
    with start(*command(tmp_path / "whole", "--steps", 300)) as process:
        process.communicate()
    assert abs(run.read_result().test_error - Run(tmp_path / "whole").read_result().test_error) < 10


@pytest.mark.soak
def test_a_worker_that_fails_to_start_ends_the_training(tmp_path):
    """Rank 0 waits for the worker inside torch, so a thread ends the process."""
    code = """
import sys, torch
from afda.machine import launch
arguments = ["train", "digits", "--out", sys.argv[1], "--steps", "nonsense"]
with launch.join_workers(launch.detect_role(2), torch.device("cpu"), arguments, "again"):
    print("never")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Training stopped: process 1 of 2 failed (" in done.stderr
    assert done.stderr.endswith("continue with: again\n")


def test_contradictory_options_are_refused(afda, monkeypatch, tmp_path):
    code, _, stderr = afda(*command(tmp_path / "run", "--minutes", 1, "--processes", 2))
    assert code == 2
    assert stderr == "Error: --minutes works with one process only; with several, give --steps instead.\n"
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert launch.detect_role(None) == launch.Role(1, 2)
    with pytest.raises(UserError, match="leave out --processes"):
        launch.detect_role(2)
    assert not (tmp_path / "run").exists()
