"""Sweeps, searches and predictions on real Ray clusters: the same as on this machine's processes, whatever is lost."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from afda import __version__, cluster
from afda.errors import UserError
from afda.inference import load_model
from afda.predict import in_batches, items, predicted, table
from afda.recipe import Recipe
from afda.recipes import recipe
from afda.reproduce import cells, planned
from afda.reproduce import table as numbers
from afda.runs import Run, open_run
from afda.runtime import runtime
from afda.sweep import command, sweep

pytest.importorskip("ray", reason="Ray is not installed: pip install 'afda[ray]'")

QUICK = ["steps=20", "net.width=0.25", "labelled_batch=10", "unlabelled_batch=10"]
SWEEP = ["reproduce", "table-5", "--on-digits", "--labels", "20", "--only", "method=supervised"]


def settings(*texts):
    return [word for text in texts for word in ("--set", text)]


@contextlib.contextmanager
def nodes(place, *cpus):
    """A Ray cluster on this machine: its head, and other nodes, each with a folder for its temporary files."""
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus[0], "include_dashboard": False})
    try:
        others = []
        for i, number in enumerate(cpus[1:]):
            folder = place / f"node{i}"
            folder.mkdir()
            others.append((started.add_node(num_cpus=number, env_vars={"TMPDIR": str(folder)}), folder))
        started.wait_for_nodes()
        yield started, others
    finally:
        started.shutdown()


@pytest.fixture(scope="module")
def one_node(tmp_path_factory):
    with nodes(tmp_path_factory.mktemp("one"), 2) as (started, _):
        joined = cluster.Cluster(started.address)
        yield joined
        joined.leave()


@pytest.fixture(scope="module")
def swept(one_node, tmp_path_factory):
    """The same small sweep on this machine's processes and on Ray."""
    chosen = cells("table-5", "method=supervised", labels=20, on_digits=True)
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    for folder, how in ((here, {}), (there, {"machines": one_node})):
        jobs = planned("table-5", chosen, folder, "cpu", 1, QUICK)
        for _ in sweep(jobs, **how):
            pass
        assert [(job.state, job.problem) for job in jobs] == [("done", "")] * 2
    return chosen, here, there


def contents(folder):
    """All files of the runs in a folder, but for what time and place put into them."""
    found = {}
    for path in sorted(p for p in Path(folder).rglob("*") if p.is_file() and not p.name.startswith(".")):
        if "tables" in path.parts:
            continue
        content = path.read_bytes()
        if path.name == "result.json":
            content = {k: v for k, v in json.loads(content).items() if k not in ("seconds", "images_per_second")}
        if path.name == "log.jsonl":
            content = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in content.splitlines()]
        found[path.relative_to(folder)] = content
    return found


def test_a_sweep_is_the_same_on_ray(swept):
    chosen, here, there = swept
    assert numbers("table-5", chosen, here, "cpu", 1) == numbers("table-5", chosen, there, "cpu", 1)
    assert contents(here) == contents(there)
    assert any(path.name == "model.safetensors" for path in contents(there))


def test_predictions_are_the_same_on_ray(one_node, swept, digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "SHARD", 7)  # several tasks, and as many batches
    monkeypatch.setattr("afda.predict.BATCH", 7)
    run = next(swept[2].rglob("model.json")).parent
    Path("images").mkdir()
    for i, image in enumerate(digits.test.x[:20]):
        Image.fromarray(image[0].numpy()).save(f"images/{i}.png")
    Path("images/damaged.png").write_text("no image")
    np.savez("more.npz", x=digits.test.x[:3].permute(0, 2, 3, 1).numpy())
    Path("list.txt").write_text("images/0.png\nabsent.png\n")
    written, left_out = {}, {"here": [], "there": []}
    machine, (model, shape) = runtime("cpu", threads=1), load_model(run)
    machine.place(model)
    for where, skipped in left_out.items():
        tell = lambda *which, to=skipped: to.append(which)  # noqa: E731
        todo = items(["images", "more.npz", "list.txt"], tell)
        rows = predicted(model, shape, todo, machine, tell) if where == "here" else one_node.predicted(run, todo, tell)
        with table(Path(f"{where}.csv"), overwrite=False) as write:
            for batch in in_batches(rows):
                write(batch)
        written[where] = Path(f"{where}.csv").read_bytes()
    assert written["here"] == written["there"]
    assert len(written["here"].splitlines()) == 1 + 20 + 3 + 1
    assert [name for name, _ in left_out["here"]] == [name for name, _ in left_out["there"]]
    assert len(left_out["here"]) == 2


def test_what_a_machine_lacks_is_said(one_node, tmp_path):
    (told,) = cluster.trained({}, "run", str(tmp_path / "mine"), 1, (), __version__)
    assert told[:2] == ({}, 2)
    assert "must lie at the same path on every machine" in told[2]
    (told,) = cluster.trained({}, "run", "digits", 1, (), "0.0.0")
    assert "install the same on every machine" in told[2]
    with pytest.raises(UserError, match="No machine of the cluster has 64 CPUs and 0 GPUs"):
        cluster.Cluster(None, 64)


def test_mistakes_are_explained(monkeypatch):
    with pytest.raises(UserError, match=r"No Ray cluster answers at 127.0.0.1:1;"):
        cluster.connected("127.0.0.1:1")
    with pytest.raises(UserError, match="on a machine of the cluster"):
        cluster.connected("ray://127.0.0.1:10001")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install -c constraints.txt 'afda\[ray\]'"):
        cluster.connected(None)


def test_options_are_checked(afda):
    assert afda(*SWEEP, "--on", "rays")[::2] == (
        2,
        "afda: There is no place for --on called 'rays'; did you mean 'ray'?\n",
    )
    assert afda(*SWEEP, "--address", "x:1")[::2] == (2, "afda: --address is that of a Ray cluster; add --on ray.\n")


def test_files_are_read_and_written_in_an_order_that_may_be_cut_off(tmp_path):
    for name in ("log.jsonl", "checkpoint.pt", "checkpoint.previous.pt", "model.json", "result.json", ".lock"):
        (tmp_path / name).write_text(name)
    known = {}
    assert list(cluster.changed(tmp_path, known)) == ["checkpoint.pt", "log.jsonl", "model.json"]
    with open(tmp_path / "log.jsonl", "a") as log:
        log.write("more")
    assert cluster.changed(tmp_path, known) == {"log.jsonl": b"log.jsonlmore"}
    assert next(iter(cluster.changed(tmp_path, {}, ended=True))) == "result.json"


def start(*arguments, **options):
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # what runs in the background may inherit that it is ignored
    words = [sys.executable, "-m", "afda", *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finished(process, code=0):
    out, complaint = process.communicate()
    assert process.returncode == code, complaint
    assert "Traceback" not in complaint
    return out


def wait_for(condition, process):
    while not (found := condition()):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    return found


def mentioned(folder):
    """The processes with this folder in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
    return found


def test_a_training_does_not_outlive_its_task(digits, tmp_path):
    """Its task holds the other end of its standard input."""
    made = recipe("digits-demo", digits, "supervised", "none", 20).with_settings([*QUICK, "steps=1000000"])
    open_run(tmp_path / "run", made).unlock()
    words = [sys.executable, "-c", "from afda.cluster import leashed; leashed()"]
    words += command(tmp_path / "run", "digits", 1, ())
    environment = {**os.environ, "AFDA_LEASH": str(tmp_path / "run")}
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    wait_for((tmp_path / "run" / "checkpoint.pt").exists, process)
    process.communicate()  # which lets go of it
    assert process.returncode == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.soak
def test_a_node_is_killed_half_way(tmp_path, monkeypatch):
    """Two nodes with one run each; one of them is lost. Its run goes on from its checkpoint when there is room, and all
    ends in the same bits as without the loss. The training on the lost node does not outlive it."""
    monkeypatch.setenv("AFDA_CHECKPOINT_SECONDS", "0.2")
    changed = ["steps=3000", *QUICK[1:]]
    command = [*SWEEP, "--seeds", "1", "--json", *settings(*changed)]
    runs = Path(",".join(sorted(changed)), "cpu", "digits-demo")
    with nodes(tmp_path, 0, 1, 1) as (started, ((lost, folder), (_, other))):
        there = tmp_path / "there"
        process = start(*command, "--on", "ray", "--address", started.address, "--out", there)
        wait_for(lambda: list(folder.glob("afda-*/checkpoint.previous.pt")), process)
        wait_for(lambda: all(Run(p).log() for p in (there / runs).iterdir()), process)
        on_it = next(Recipe.read(p) for p in folder.glob("afda-*/recipe.json"))
        run = next(Run(p) for p in (there / runs).iterdir() if Run(p).recipe() == on_it)
        wait_for(lambda: (run.read_checkpoint() or {"step": 0})["step"] > 0, process)
        saved = run.read_checkpoint()["step"]
        assert not run.finished
        started.remove_node(lost, allow_graceful=False)
        wait_for(lambda: not mentioned(folder), process)  # its training ended, long before its end
        assert not run.finished
        wait_for(lambda: any(Recipe.read(p) == on_it for p in other.glob("afda-*/recipe.json")), process)
        again = next(p.parent for p in other.glob("afda-*/recipe.json") if Recipe.read(p) == on_it)
        assert Run(again).read_checkpoint()["step"] >= saved  # it did not begin anew
        finished(process)
        assert not list(other.glob("afda-*"))
    finished(start(*command, "--out", tmp_path / "here"))
    assert contents(there) == contents(tmp_path / "here")
    assert not list(there.rglob("checkpoint*"))


@pytest.mark.soak
def test_ctrl_c_leaves_a_sweep_that_continues(tmp_path):
    command = [*SWEEP, "--seeds", "1", "--json", *settings("steps=300", *QUICK[1:]), "--out", tmp_path / "there"]
    with nodes(tmp_path, 0, 1) as (started, ((_, folder),)):
        command += ["--on", "ray", "--address", started.address]
        first = start(*command)
        wait_for(lambda: [p for p in tmp_path.glob("there/**/log.jsonl") if Run(p.parent).log()], first)
        first.send_signal(signal.SIGINT)
        finished(first, 130)
        assert not list(tmp_path.glob("there/**/result.json"))
        while mentioned(folder):  # nothing goes on behind our back
            time.sleep(0.1)
        rows = json.loads(finished(start(*command)))["rows"]
    assert all(row["plain"] and row["aligned"] for row in rows)


@pytest.mark.soak
def test_predictions_of_many_files_by_the_command(swept, digits, tmp_path):
    """More images than one task takes, on two nodes of which one is killed: the file is that of one process."""
    run = next(swept[2].rglob("model.json")).parent
    for i in range(2500):
        place = tmp_path / "images" / str(i % 7)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.train.x[i % len(digits.train.x)][0].numpy()).save(place / f"{i}.png")
    (tmp_path / "images" / "0" / "damaged.png").write_text("no image")
    command = ["predict", run, "images", "--threads", "1", "--device", "cpu", "--json", "-o"]
    finished(start(*command, "here.csv", cwd=tmp_path))
    with nodes(tmp_path, 0, 1, 1) as (started, ((lost, _), _)):
        process = start(*command, "there.csv", "--on", "ray", "--address", started.address, cwd=tmp_path)
        wait_for((tmp_path / ".there.csv.part").exists, process)
        started.remove_node(lost, allow_graceful=False)
        assert json.loads(finished(process))["images"] == 2500
    for ending in ("csv", "csv-skipped.csv"):
        assert (tmp_path / f"here.{ending}").read_bytes() == (tmp_path / f"there.{ending}").read_bytes()


@pytest.mark.soak
def test_a_search_is_the_same_on_ray_and_continues_after_ctrl_c(tmp_path):
    search = ["tune", "digits", "--labels", "20", "--method", "supervised", "--align", "none", "--jobs", "1", "--json"]
    search += settings("steps=200", "net.width=0.25")
    here = json.loads(finished(start(*search, "--trials", "2", "--out", tmp_path / "here")))
    with nodes(tmp_path, 0, 1) as (started, _):
        search += ["--on", "ray", "--address", started.address, "--out", tmp_path / "there"]
        first = start(*search, "--trials", "2")
        (trial,) = wait_for(lambda: [p.parent for p in tmp_path.glob("there/trials/*/log.jsonl")], first)
        first.send_signal(signal.SIGINT)
        finished(first, 130)
        assert not Run(trial).finished
        there = json.loads(finished(start(*search, "--trials", "2")))
    assert here["trials"] == there["trials"] == 2
    assert Run(trial).finished  # its point was queued again
    assert contents(trial) == contents(tmp_path / "here" / "trials" / trial.name)
