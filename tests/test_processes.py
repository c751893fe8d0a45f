"""Several processes train as one does: the same batch, the same updates, one log, one result."""

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.multiprocessing import spawn

from afda import processes, workers
from afda.algorithm import steps
from afda.errors import UserError
from afda.fit import assist
from afda.runs import Run
from afda.runtime import Runtime
from afda.training import begin, check_shares
from test_conformance import ALIGNMENTS, METHODS, NETS, bits, data, training

CPU = Runtime(torch.device("cpu"))
TOLERANCE = 1e-9
"""Of the largest entry of a tensor of weights, statistics or optimiser state, after three updates in float64."""
SHAKE_SHAKE = 1e-7
"""Its skips have biases before a BatchNorm: their gradient is nothing but rounding, which Adam magnifies."""


def in_processes(work, count, folder, *arguments):
    """Run work(*arguments) in processes that have joined, and return what each of them returned."""
    spawn(joined, (count, str(folder), work, arguments), nprocs=count)
    return [torch.load(folder / f"{rank}.pt") for rank in range(count)]


def joined(rank, count, folder, work, arguments):
    torch.set_num_threads(1)
    processes.join(rank, count, CPU.device, f"{folder}/meeting")
    torch.save(work(*arguments), f"{folder}/{rank}.pt")
    processes.leave()


def made(method, align="none", net="small", settings=()):
    recipe = training(method, align, net, labelled_batch=4, unlabelled_batch=8).recipe
    return begin(recipe.with_settings(list(settings)), data(net), CPU)


def updated(case):
    """The state after three updates in float64, and the sums of the loss terms."""
    begun = made(*case)
    for part in (begun.nets.student, begun.nets.teacher, begun.alignment, begun.normaliser):
        if part is not None:
            part.double()
    list(itertools.islice(steps(begun), 3))
    return bits(begun)


def test_the_others_take_the_precision_of_the_first(monkeypatch):
    """The first goes on in the precision that the run was begun in, whatever each would choose by itself."""
    begun, said = made("vat"), io.BytesIO()
    begun.step = begun.recipe.steps  # nothing is left to do
    torch.save({**begun.state(), "precision": "bfloat16"}, said)
    monkeypatch.setattr(processes, "told", said.getvalue)
    assert begun.runtime.precision == "float32"
    assist(begun)
    assert begun.runtime.precision == "bfloat16"


def at_work(cases):
    """What a process has of the first batch, and its state after some updates of each case."""
    batch = made("pi-model").batch(0)
    return {"x": batch.x, "y": batch.y, "u": batch.u, "states": [updated(case) for case in cases]}


def distance(one, other):
    """The largest difference, by the largest entry. Below 0.01 an entry counts as 0.01: some gradients are rounding."""
    one, other = one.double(), other.double()
    return float((one - other).abs().max() / one.abs().max().clamp_min(0.01))


def distances(cases, found):
    """How far each case's state on each process is from that of one process alone."""
    for i, case in enumerate(cases):
        alone = updated(case)
        assert len(alone) > 20
        yield case, max(distance(*pair) for process in found for pair in zip(alone, process["states"][i], strict=True))


def assert_agreement(cases, found):
    for case, off in distances(cases, found):
        assert off < (SHAKE_SHAKE if "shake-shake" in case else TOLERANCE), (case, off)


SAMPLE = [
    ("supervised", "none"),
    ("pi-model", "adversarial"),
    ("mean-teacher", "reversal"),
    ("vat+entropy", "adversarial"),
    ("entropy", "mmd", "mlp"),
    (
        "vat+entropy",
        "adversarial",
        "small",
        ["batchnorm=together", "statistics=both", "net.dropout=0", "order=literal", "supervised_mean=batch"],
    ),
]
ALL = [
    *((method, align) for method in METHODS for align in ALIGNMENTS),
    *((method, "adversarial", net) for method in METHODS for net in NETS),
    *((method, "adversarial", "shake-shake", ["net.heads=2"]) for method in METHODS),
    *((method, "adversarial", "small", SAMPLE[-1][3]) for method in METHODS if method != "supervised"),
    *(("vat", "adversarial", "small", [f"align.form={form}"]) for form in ("inverted", "unlabelled-only")),
    ("vat", "adversarial", "small", ["optimisation.optimizer=sgd", "align.learning_rate=0.01"]),
    ("vat", "none", "small", ["method.vat.on=unlabelled", "method.vat.noise=fresh", "method.vat.iterations=2"]),
    ("mean-teacher", "none", "small", ["method.mean-teacher.on=all"]),
    ("pi-model", "none", "small", ["method.pi-model.gradient=first"]),
]


def test_two_processes_agree_with_one(tmp_path):
    found = in_processes(at_work, 2, tmp_path, SAMPLE)
    assert_agreement(SAMPLE, found)
    # Each has other images, the two together the batch; the labels are those of all.
    whole = made("pi-model").batch(0)
    assert torch.equal(torch.cat([process["x"] for process in found]), whole.x)
    assert torch.equal(torch.cat([process["u"] for process in found]), whole.u)
    assert all(torch.equal(process["y"], whole.y) for process in found)
    images = torch.cat([whole.x, whole.u]).flatten(1)
    assert len(images.unique(dim=0)) == len(images) == 12


@pytest.mark.soak
@pytest.mark.parametrize("count", [2, 4])
def test_processes_agree_with_one_in_everything(tmp_path, count):
    assert_agreement(ALL, in_processes(at_work, count, tmp_path, ALL))


# The command


def command(out, *options):
    small = ["--set", "net=mlp", "--set", "align.hidden=8", "--method", "pi-model", "--threads", "1"]
    return ["train", "digits", *small, "--out", str(out), *map(str, options)]


def start(*arguments):
    command = [sys.executable, "-m", "afda", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def at_step(process, run, step):
    while process.poll() is None and not any(line["step"] >= step for line in run.log()):
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()


def children(process):
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def in_log(run):
    return [line["step"] for line in run.log()]


def assert_alike(run, other):
    """The same up to float32's rounding."""
    for one, two in zip(run.log(), other.log(), strict=True):
        for name in ("supervised", "consistency", "alignment", "discriminator_accuracy"):
            assert two[name] == pytest.approx(one[name], rel=0.02, abs=0.02), (one["step"], name)


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")


@needs_proc
def test_a_killed_worker_ends_the_run_which_resumes_alone(afda, tmp_path):
    run = Run(tmp_path / "run")
    with start(*command(run.path, "--steps", 100, "--processes", 2)) as process:
        at_step(process, run, 10)
        (worker,) = children(process)
        os.kill(worker, signal.SIGKILL)
        _, complaint = process.communicate()
    assert process.returncode == 1
    last = complaint.splitlines()[-1]
    assert last.startswith("afda: Of 2 processes process 1 was killed by signal 9; continue with: afda train digits ")
    assert last.endswith(" --resume --processes 2")
    assert "Traceback" not in complaint
    assert not run.finished
    code, _, _ = afda("train", "digits", "--out", run.path, "--resume", "--quiet", "--threads", 1)
    assert code == 0
    assert in_log(run) == list(range(1, 101))
    assert not list(run.path.glob("*.pt"))
    assert run.read_json("environment.json")["processes"] == 2


def test_under_torchrun(afda, tmp_path):
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
    assert json.loads(done.stdout) == {"run": str(two.path), **two.result()}  # said by one
    assert two.read_json("environment.json")["processes"] == 2
    assert in_log(two) == list(range(1, 21))
    assert afda(*command(tmp_path / "one", *options))[0] == 0
    assert_alike(Run(tmp_path / "one"), two)


@needs_proc
@pytest.mark.soak
def test_stopped_killed_and_resumed_with_other_numbers_of_processes(tmp_path):
    run = Run(tmp_path / "run")
    again = ["train", "digits", "--out", str(run.path), "--resume", "--threads", "1"]
    for number, first in ((signal.SIGINT, True), (signal.SIGTERM, False)):  # whichever process is told to stop, all do
        resumed = (run.path / "recipe.json").exists()
        with start(*(again if resumed else command(run.path, "--steps", 300)), "--processes", "2") as process:
            at_step(process, run, 60 if resumed else 20)
            (worker,) = children(process)
            os.kill(process.pid if first else worker, number)
            _, complaint = process.communicate()
        assert process.returncode == 130
        assert "continue with: afda train digits" in complaint
    reached = run.read_checkpoint()["step"]
    assert reached >= 60
    with start(*again, "--processes", "4") as process:
        at_step(process, run, 120)
        os.kill(children(process)[1], signal.SIGKILL)
        assert "process 2 was killed by signal 9" in process.communicate()[1]
    with start(*again, "--processes", "2") as process:
        at_step(process, run, 200)
        (worker,) = children(process)
        process.kill()  # and with the first the others go
    while os.path.exists(f"/proc/{worker}") and "Z" not in Path(f"/proc/{worker}/stat").read_text().split()[2]:
        time.sleep(0.1)
    assert run.read_checkpoint()["step"] == reached
    with start(*again) as process:
        process.communicate()
    assert process.returncode == 0
    assert in_log(run) == list(range(3, 301, 3))
    with start(*command(tmp_path / "whole", "--steps", 300)) as process:
        process.communicate()
    assert abs(run.result()["test_error"] - Run(tmp_path / "whole").result()["test_error"]) < 10


@pytest.mark.soak
def test_a_process_that_does_not_come(tmp_path):
    """The first one waits for it inside torch; it is ended from outside."""
    code = """
import sys, torch
from afda import workers
sys.argv = ["afda", "train", "digits", "--out", sys.argv[1], "--steps", "nonsense"]
with workers.joined(workers.place(2), torch.device("cpu"), "again"):
    print("never")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Of 2 processes process 1 failed (" in done.stderr
    assert done.stderr.endswith("continue with: again\n")


def test_what_does_not_go_together(afda, monkeypatch, tmp_path):
    code, _, complaint = afda(*command(tmp_path / "run", "--minutes", 1, "--processes", 2))
    assert code == 2
    assert complaint == "afda: --minutes goes by the pace of one process; with several, give --steps instead.\n"
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert workers.place(None) == workers.Place(1, 2)
    with pytest.raises(UserError, match="leave out --processes"):
        workers.place(2)
    assert not (tmp_path / "run").exists()


def test_a_batch_that_cannot_be_shared(monkeypatch):
    recipe = made("pi-model").recipe
    monkeypatch.setattr(processes, "_here", processes.Membership(0, 3))
    with pytest.raises(UserError, match=r"3 processes cannot share batches of 4 labelled .*--processes can be 2"):
        check_shares(recipe)
    check_shares(recipe.with_settings(["method=supervised", "labelled_batch=6", "unlabelled_batch=8"]))
