import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from afda.errors import RunFailed, UserError
from afda.recipe import Recipe
from afda.runs.directory import CHECKPOINT, PREVIOUS, Run, describe_differences, open_run
from afda.runs.log import LogLine

RECIPE = Recipe.of({"data": "digits", "labels": 50, "net": "small", "method": ["vat", "entropy"], "steps": 10})


def state(step: int) -> dict:
    return {"step": step, "weights": torch.arange(100.0) + step}


def write_checkpoints(path: Path, *steps: int) -> Run:
    run = open_run(path, RECIPE)
    for step in steps:
        run.write_checkpoint(state(step))
    return run


def damage(file: Path, how: str) -> None:
    content = bytearray(file.read_bytes())
    if how == "flipped":
        content[len(content) // 2] ^= 1
    elif how == "checksum":
        content[3] ^= 128
    elif how == "truncated":
        del content[-1:]
    elif how == "half":
        del content[len(content) // 2 :]
    else:
        content.clear()
    file.write_bytes(content)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# Atomic writes


def test_write_json(tmp_path):
    run = Run(tmp_path)
    run.write_json("a.json", {"x": [1, None]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [1, None]}
    assert list(files(tmp_path)) == ["a.json"]


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch, function, code):
    run = Run(tmp_path)
    run.write("a", b"old")

    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, function, fail)
    kind, words = (UserError, "cannot be written") if code == errno.EIO else (RunFailed, "full; .*--resume")
    with pytest.raises(kind, match=words):
        run.write("a", b"new")
    assert files(tmp_path) == {"a": b"old"}


def test_only_finite_numbers_are_written(tmp_path):
    run = Run(tmp_path)
    run.write_json("a.json", {"x": 1})
    line = LogLine(step=1, values={"mmd2": float("inf")})
    for write in (lambda: run.write_json("a.json", {"x": float("nan")}), lambda: run.log.append(line)):
        with pytest.raises(RunFailed, match="no longer finite numbers"):
            write()
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1}
    assert run.log.read() == []


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff"])
def test_unreadable_json(tmp_path, content):
    if content is not None:
        (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(UserError, match=r"has no readable result\.json"):
        Run(tmp_path).read_result()


# Checkpoints


def test_the_newest_checkpoint_is_read_and_the_last_but_one_kept(tmp_path):
    run = write_checkpoints(tmp_path / "run", 1, 2, 3)
    assert run.read_checkpoint()["step"] == 3
    assert torch.equal(run.read_checkpoint()["weights"], state(3)["weights"])
    (run.path / CHECKPOINT).unlink()
    assert run.read_checkpoint()["step"] == 2
    run.discard(CHECKPOINT, PREVIOUS)
    assert run.read_checkpoint() is None


@pytest.mark.parametrize("how", ["flipped", "checksum", "truncated", "half", "empty"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, how):
    run = write_checkpoints(tmp_path / "run", 1, 2)
    damage(run.path / CHECKPOINT, how)
    assert run.read_checkpoint()["step"] == 1
    damage(run.path / PREVIOUS, how)
    with pytest.raises(RunFailed, match="damaged; start again with --overwrite"):
        run.read_checkpoint()


def test_a_single_damaged_checkpoint_is_not_taken_for_a_fresh_start(tmp_path):
    run = write_checkpoints(tmp_path / "run", 1)
    damage(run.path / CHECKPOINT, "half")
    with pytest.raises(RunFailed, match="damaged"):
        run.read_checkpoint()


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_keeps_the_last_good_state(tmp_path, monkeypatch, function):
    run = write_checkpoints(tmp_path / "run", 1, 2)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, function, full)
        for _ in range(3):
            with pytest.raises(RunFailed, match=f"The disk that holds {run.path} is full; free some space"):
                run.write_checkpoint(state(3))
            assert run.read_checkpoint()["step"] == 2
    assert not list(run.path.glob(".*.part"))
    run.write_checkpoint(state(3))
    assert run.read_checkpoint()["step"] == 3


def test_a_full_disk_while_logging(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    run = Run(tmp_path)
    (tmp_path / "log.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunFailed, match="is full"):
        run.log.append(LogLine(step=1))


def test_a_write_cut_off_by_death_is_not_seen(tmp_path):
    run = write_checkpoints(tmp_path / "run", 1)
    (run.path / f".{CHECKPOINT}.part").write_bytes(b"half a checkp")
    assert run.read_checkpoint()["step"] == 1
    run.write_checkpoint(state(2))
    assert not list(run.path.glob("*.part"))


def test_a_checkpoint_that_would_run_code_does_not(tmp_path):
    run = open_run(tmp_path / "run", RECIPE)
    run.write_checkpoint({"path": Path("x")})
    with pytest.raises(RunFailed, match="are damaged; start again"):
        run.read_checkpoint()


# The log


def test_truncate_log(tmp_path):
    run = Run(tmp_path)
    assert run.log.read() == []
    for step in (10, 20, 30):
        run.log.append(LogLine(step=step))
    run.log.truncate(25)
    assert (tmp_path / "log.jsonl").read_text() == '{"step": 10}\n{"step": 20}\n'
    run.log.truncate(0)
    assert (tmp_path / "log.jsonl").read_text() == ""


@pytest.mark.parametrize("rest", ['{"step": 30, "a": 1', "{", '{"step"', "nonsense"])
def test_a_half_written_last_line_is_left_out(tmp_path, rest):
    run = Run(tmp_path)
    (tmp_path / "log.jsonl").write_text('{"step": 10}\n{"step": 20}\n' + rest)
    assert [line.step for line in run.log.read()] == [10, 20]
    run.log.truncate(20)
    run.log.append(LogLine(step=30))
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [10, 20, 30]


def test_a_last_line_without_its_end_is_kept(tmp_path):
    run = Run(tmp_path)
    (tmp_path / "log.jsonl").write_text('{"step": 10}')
    run.log.truncate(10)
    run.log.append(LogLine(step=20))
    assert [line.step for line in run.log.read()] == [10, 20]


# The lock

HOLD = """
import sys, time
from pathlib import Path
from afda.runs.directory import Run
run = Run(Path(sys.argv[1])); run.path.mkdir(exist_ok=True); run.lock(); print("held", flush=True); time.sleep(600)
"""


def test_a_run_in_use_is_refused_until_its_process_dies(tmp_path):
    path = tmp_path / "run"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    with holder:
        try:
            assert holder.stdout.readline() == "held\n"
            for choices in ({}, {"resume": True}, {"overwrite": True}):
                with pytest.raises(UserError, match="in use by another process"):
                    open_run(path, RECIPE, **choices)
            assert list(files(path)) == [".lock"]
        finally:
            holder.kill()
    assert open_run(path, RECIPE).read_recipe() == RECIPE


def test_a_lock_is_given_back(tmp_path):
    run = open_run(tmp_path / "run", RECIPE)
    with pytest.raises(UserError, match="in use"):
        open_run(run.path, RECIPE, resume=True)
    run.unlock()
    open_run(run.path, RECIPE, resume=True).unlock()


# Opening


def test_a_new_run(tmp_path):
    run = open_run(tmp_path / "deep" / "run", RECIPE)
    assert run.read_recipe() == RECIPE
    assert not run.finished


@pytest.mark.parametrize("choices", [{"resume": True}, {"overwrite": True}, {"resume": True, "overwrite": True}])
def test_choices_on_a_new_directory_do_no_harm(tmp_path, choices):
    assert open_run(tmp_path / "run", RECIPE, **choices).read_recipe() == RECIPE
    (tmp_path / "empty").mkdir()
    assert open_run(tmp_path / "empty", RECIPE, **choices).read_recipe() == RECIPE


def test_an_existing_run_is_never_overwritten(tmp_path):
    write_checkpoints(tmp_path / "run", 1).unlock()
    before = files(tmp_path)
    with pytest.raises(UserError, match="already exists; add --resume to continue it, --overwrite to replace it"):
        open_run(tmp_path / "run", RECIPE)
    open_run(tmp_path / "run", RECIPE, resume=True).unlock()
    open_run(tmp_path / "run", RECIPE, resume=True, overwrite=True).unlock()
    assert files(tmp_path) == before


def test_overwrite_replaces_a_run(tmp_path):
    run = write_checkpoints(tmp_path / "run", 1)
    (run.path / "plots").mkdir()
    (run.path / "plots" / "a.png").touch()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    (run.path / "link").symlink_to(precious)
    run.unlock()
    other = RECIPE.with_settings(["seed=1"])
    assert open_run(run.path, other, overwrite=True).read_recipe() == other
    assert sorted(files(run.path)) == [".lock", "plots/a.png", "recipe.json"]  # what no run writes is kept
    assert files(precious) == {"file": b"kept"}


@pytest.mark.parametrize("choices", [{}, {"resume": True}, {"overwrite": True}])
def test_other_folders_are_left_alone(tmp_path, choices):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match=r"already exists|is not the directory of a run, so it is left alone"):
        open_run(tmp_path, RECIPE, **choices)
    assert files(tmp_path) == {"thesis.tex": b"years of work"}


def test_impossible_directories(tmp_path):
    (tmp_path / "file").write_text("text")
    for path, words in (
        (tmp_path / "file", "is a file; choose another --out"),
        (tmp_path / "file" / "run", "cannot be written .*choose another --out"),
        (tmp_path / ("x" * 300), "cannot be written .*choose another --out"),
    ):
        with pytest.raises(UserError, match=words):
            open_run(path, RECIPE)
    assert files(tmp_path) == {"file": b"text"}


def test_a_folder_without_permission(tmp_path, monkeypatch):
    def refuse(self, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "run").mkdir()
    for method in ("mkdir", "iterdir"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, method, refuse)
            with pytest.raises(UserError, match=r"cannot be written \(Permission denied\); choose another --out"):
                open_run(tmp_path / "run", RECIPE)


# Another recipe


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["steps=20"], "steps: 10 there, 20 now"),
        (["labels=null"], "labels: 50 there, none now"),
        (["net=mlp"], "net: small there, mlp now"),
        (["net.width=2"], "net.width: 1.0 there, 2.0 now"),
        (["method=supervised"], "method: vat+entropy there, supervised now"),
        (["method=entropy+vat"], "method: vat+entropy there, entropy+vat now"),
        (["method.vat.radius=1"], "method.vat.radius: 3.5 there, 1.0 now"),
        (["align=mmd"], "align: none there, mmd now"),
        (["optimisation.learning_rate=1"], "optimisation.learning_rate: 0.0005 there, 1.0 now"),
        (["seed=1", "steps=1"], "seed: 0 there, 1 now, steps: 10 there, 1 now"),
    ],
)
def test_describe_differences(tmp_path, settings, words):
    other = RECIPE.with_settings(settings)
    assert describe_differences(RECIPE, other) == words
    open_run(tmp_path / "run", RECIPE).unlock()
    before = files(tmp_path)
    with pytest.raises(UserError, match="was started with another recipe") as error:
        open_run(tmp_path / "run", other, resume=True)
    assert words in str(error.value)
    assert files(tmp_path) == before


def test_no_differences():
    assert describe_differences(RECIPE, Recipe.of(RECIPE.model_dump())) == ""
