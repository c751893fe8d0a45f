"""A method from somebody else's package: installed into an environment of its own, trained, killed and resumed."""

import json
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "third-party-method"
TRAIN = ["train", "digits", "--labels", "50", "--method", "projection-memory", "--threads", "1", "--quiet"]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of a new environment with the example installed; everything else is this environment's."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    here = sysconfig.get_path("purelib")
    (packages / "this_environment.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    python = home / "bin" / "python"
    copy = home / "example"
    subprocess.run(["cp", "-r", EXAMPLE, copy], check=True)
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *options, copy], check=True)
    return python


def run_afda(python, *arguments):
    done = subprocess.run(
        [python, "-m", "afda", *map(str, arguments)], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_weights(run):
    return (run / "model.safetensors").read_bytes()


def test_the_method_is_listed_and_described(python):
    found = json.loads(run_afda(python, "list", "methods", "--json"))["methods"]
    assert found["projection-memory"].startswith("Cosine distance between projected features")
    settings = json.loads(run_afda(python, "list", "settings", "--json"))["settings"]
    assert settings["method.projection-memory.size"].startswith("length of a projection")


def test_this_environment_does_not_have_it(afda):
    code, _, err = afda("train", "digits", "--method", "projection-memory", "--quiet")
    assert code == 2
    assert "projection-memory" in err


def test_a_killed_training_resumes_bit_for_bit(python, tmp_path):
    steps = ["--steps", "120"]
    run_afda(python, *TRAIN, *steps, "--out", tmp_path / "whole")
    run = tmp_path / "killed"
    environment = {"AFDA_CHECKPOINT_SECONDS": "0", "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen([python, "-m", "afda", *TRAIN, *steps, "--out", run], env=environment)
    log = run / "log.jsonl"
    while process.poll() is None and not (log.exists() and log.read_text().count("\n") > 30):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (run / "result.json").exists()
    run_afda(python, "train", "digits", "--out", run, "--resume", "--quiet")
    assert read_weights(run) == read_weights(tmp_path / "whole")

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert all({"projection", "agreement", "alignment"} <= line.keys() for line in lines)
    assert lines[-1]["agreement"] > lines[0]["agreement"]
    page = tmp_path / "report.html"
    run_afda(python, "report", run, "-o", page)
    assert "Mean cosine of projections" in page.read_text()


def test_two_processes_train_as_one(python, tmp_path):
    errors = []
    for processes in (1, 2):
        run = tmp_path / str(processes)
        run_afda(python, *TRAIN, "--steps", "60", "--processes", processes, "--out", run)
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        errors.append([line["agreement"] for line in lines])
    assert errors[0] == pytest.approx(errors[1], abs=2e-3)
