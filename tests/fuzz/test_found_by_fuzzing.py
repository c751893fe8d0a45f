"""What the fuzzers, or a look at the readers, have found: each stays refused in one sentence."""

import gzip
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest
import targets
import torch
from safetensors.torch import load_file, save_file
from trying import try_one

from afda.cli import main
from afda.data import arrays, download, load, matlab
from afda.data.decode import Unreadable, read_header
from afda.data.own import add_labels
from afda.data.own import load as load_images
from afda.errors import RunFailed, UserError, printable
from afda.experiments.study import open_study
from afda.machine.runtime import select_runtime
from afda.recipe import Recipe
from afda.report.collect import collect_report
from afda.runs.directory import Run, load_state
from afda.runs.model import load_model
from afda.runs.predict import find_items, predict_items
from afda.training.state import begin

DEEP = b"[" * 100_000


@pytest.fixture
def run(tmp_path):
    """A copy of a finished run."""
    return shutil.copytree(targets.finished(), tmp_path / "run")


def changed(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def with_tensors(run, **values):
    changed(run / "model.json", sha256=None)
    held = load_file(run / "model.safetensors")
    save_file(held | {key.replace("__", "."): value for key, value in values.items()}, run / "model.safetensors")


# Nothing is run


class Touch:
    """A pickle that makes a file of whoever opens it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_postscript_in_an_image_file_runs_no_program(tmp_path, monkeypatch):
    """Pillow hands it to Ghostscript."""
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'harm'}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    path = tmp_path / "a.png"
    path.write_bytes(targets.image("EPS", "RGB"))
    with pytest.raises(Unreadable, match="not an image"):
        read_header(path)
    assert not (tmp_path / "harm").exists()


def test_no_pickle_is_opened(run, tmp_path):
    harm = Touch(tmp_path / "harm")
    np.savez(tmp_path / "a.npz", x=np.array([harm], dtype=object), y=np.array([0]))
    with pytest.raises(UserError, match="plain arrays"):
        load(str(tmp_path / "a.npz"))
    (tmp_path / "b.npz").write_bytes(pickle.dumps(harm))
    with pytest.raises(UserError, match="plain arrays"):
        load(str(tmp_path / "b.npz"))
    (run / "model.safetensors").write_bytes(pickle.dumps(harm))
    with pytest.raises(UserError, match="cannot be read as a model"):
        load_model(run)
    for content in (pickle.dumps(harm), saved({"step": harm}), saved(harm, _use_new_zipfile_serialization=False)):
        with pytest.raises(RunFailed, match="are damaged"):
            targets.restored(tmp_path / f"{len(content)}", content)
    assert not (tmp_path / "harm").exists()


def saved(value, **how):
    buffer = io.BytesIO()
    torch.save(value, buffer, **how)
    return buffer.getvalue()


# Nothing is waited for, and no more memory taken than a file is worth


def test_a_pipe_is_not_waited_for(run, tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(Unreadable, match="not a file"):
        read_header(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("a.png\n")
    model, shape = load_model(run)
    skipped = []
    todo = find_items([str(tmp_path / "a.txt")], None)
    assert list(predict_items(model, shape, todo, select_runtime("cpu"), lambda *skip: skipped.append(skip))) == []
    assert skipped == [("a.png", "not a file")]
    os.mkfifo(tmp_path / "x.mat")
    with pytest.raises(UserError, match="make it a readable file"):
        download.compute_checksums(tmp_path / "x.mat")
    for name in ("model.json", "model.safetensors"):
        os.remove(run / name)
        os.mkfifo(run / name)
        with pytest.raises(UserError, match=r"readable|cannot be read"):
            load_model(run)


def test_an_array_that_unpacks_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "MOST_UNPACKED", 1 << 20)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((4, 1 << 19)), y=np.array([0, 1, 0, 1]))
    with pytest.raises(UserError, match="does not fit into memory"):
        load(str(tmp_path / "a.npz"))


def test_a_checkpoint_that_unpacks_without_end():
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(targets.state())) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + bytes(1 << 20))
    with pytest.raises(ValueError, match="compressed"):
        load_state(buffer.getvalue())


def test_a_header_of_an_archive_that_claims_gigabytes(tmp_path):
    member = tarfile.TarInfo("a.bin")
    member.type, member.size = tarfile.XHDTYPE, 1 << 33
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)))
    with pytest.raises(UserError, match="it has a header of"):
        download.unpack(tmp_path / "a.tar.gz", tmp_path / "into", ["a.bin"])


def test_an_archive_that_unpacks_without_end(tmp_path):
    member = tarfile.TarInfo("other.bin")
    member.size = 1 << 33
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)))
    with pytest.raises(UserError, match="it unpacks to more than"):
        download.unpack(tmp_path / "a.tar.gz", tmp_path / "into", ["a.bin"])


def test_arrays_that_nobody_asked_for_are_not_kept():
    whole = targets.mat_files()[0]
    content = whole + targets.matrix(b"Z", np.zeros((4, 4), np.uint8), 2)
    assert matlab._read_arrays(content, ("X", "y")).keys() == {"X", "y"}


CLAIM = """
import json, resource, sys
from pathlib import Path
from afda.errors import UserError
from afda.runs.model import load_model
import torch.linalg
now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (400 << 20),) * 2)
for path in sys.argv[1:]:
    try:
        load_model(Path(path))
    except UserError as error:
        print("refused:", error)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_a_model_takes_no_more_memory_than_its_weights(tmp_path):
    """With 400 MB to spare; the nets that are claimed would take gigabytes."""
    claims = (
        {"net": {"name": "conv-large", "width": 100}},
        {"net": {"name": "mlp", "hidden": 100_000, "features": 100_000}},
        {"shape": [4, 10_000, 10_000]},
        {"classes": [str(i) for i in range(100_000)]},
    )
    for i, claim in enumerate(claims):
        shutil.copytree(targets.finished(), tmp_path / str(i))
        changed(tmp_path / str(i) / "model.json", **claim)
    command = [sys.executable, "-c", CLAIM, *(str(tmp_path / str(i)) for i in range(len(claims)))]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout.count("refused: The model in") == len(claims), done.stdout + done.stderr


def test_a_net_that_no_memory_holds():
    wide = targets.recipe_of_tiny().with_settings(["net=conv-large", "net.width=100"])
    with pytest.raises(UserError, match="weights, too many for this machine's memory"):
        begin(wide, load(str(targets.tiny())), select_runtime("cpu"))


# JSON


@pytest.mark.parametrize("name", ["recipe-json", "result-json", "environment-json", "split-json", "model-json"])
@pytest.mark.parametrize("content", [DEEP, b"NaN", b"[]", b"1", b'{"a": 1e999}', b'{"a": ' + b"9" * 30 + b"}"])
def test_json_that_is_none(name, content):
    assert try_one(name, content) == "refused"


@pytest.mark.parametrize("name", ["log-jsonl", "cache-about", "cache-headers"])
@pytest.mark.parametrize("content", [DEEP, b"NaN", b"1", b"[1]", b'{"step": 1, "mmd2": [1]}', b"\xff"])
def test_what_can_be_done_without_is_left_out(name, content):
    assert try_one(name, content) == "read"


def test_a_setting_that_is_nested_too_deeply():
    with pytest.raises(UserError, match="is not valid"):
        targets.recipe_of_tiny().with_settings([f"seed={DEEP.decode()}"])


def test_names_in_a_recipe_that_no_line_can_hold():
    """A folder need not be named in UTF-8, and a field may be called anything."""
    made = Recipe.of(targets.recipe_of_tiny().model_dump() | {"data": "\udcff"})
    assert Recipe.of(json.loads(made.to_json())) == made
    with pytest.raises(UserError, match=r"^The recipe is not valid: .{1,200}$"):
        Recipe.of({"data": "x", "\u2028\n": 1, **made.model_dump()})


@pytest.mark.parametrize(
    "scores",
    [
        {"error": 1.0, "class_errors": {"0": 1.0, "1": 2.0}, "confusion": [[1, 2], [3]]},
        {"error": 1.0, "class_errors": {"0": 1.0, "1": 2.0}, "confusion": [[1, 2], [3, -4]]},
        {"error": 1.0, "class_errors": {"0": 1.0, "1": 2.0}, "confusion": [[0, 0], [0, 0]]},
        {"error": 1.0, "class_errors": {"0": 1.0}, "confusion": [[1, 2], [3, 4]]},
        {"error": "1", "class_errors": {}, "confusion": []},
        {},
    ],
)
def test_scores_that_do_not_fit(run, scores):
    changed(run / "result.json", test=scores)
    with pytest.raises(UserError, match=r"no readable result\.json"):
        collect_report([run], select_runtime("cpu"))


def test_a_result_of_other_classes(run):
    changed(run / "result.json", test={"error": 0, "class_errors": {"x": 0, "y": 0}, "confusion": [[9, 0], [0, 9]]})
    (report,) = collect_report([run], select_runtime("cpu")).runs
    assert "The result has other classes than the data" in report.missing[0]


def test_a_split_of_images_that_are_not_there(run):
    changed(run / "split.json", labelled=[0, 10**9])
    with pytest.raises(UserError, match="names images that tiny does not have"):
        collect_report([run], select_runtime("cpu"))


def test_tables_of_labels_that_no_file_can_be(run):
    for name in ("\0.csv", "\ud800.csv"):
        changed(run / "environment.json", more_labels=[name])
        (report,) = collect_report([run], select_runtime("cpu")).runs
        assert "cannot be read" in report.missing[0]


# Models and checkpoints


def test_weights_that_are_no_numbers(run):
    with_tensors(run, classifier__g__bias=torch.tensor([0.0, float("nan")]))
    with pytest.raises(UserError, match="not finite numbers"):
        load_model(run)


def test_weights_that_overflow(run):
    with_tensors(run, classifier__g__weight=torch.full((2, 4), 3e38), classifier__f__6__bias=torch.full((4,), 3e38))
    with pytest.raises(UserError, match="gives no finite numbers"):
        collect_report([run], select_runtime("cpu"))


@pytest.mark.parametrize("name", ["normaliser__mean", "familiar__means"])
def test_parts_of_a_model_that_do_not_fit_together(run, name):
    odd = torch.zeros(5, 7, 3, 3, 3)
    with_tensors(run, **{name: odd, "familiar__whitening": torch.eye(4), "familiar__limit": torch.zeros(())})
    with pytest.raises(UserError, match=r"The model in .* cannot be read"):
        load_model(run)


def test_a_checkpoint_of_another_training(tmp_path):
    state = torch.load(io.BytesIO(targets.state()), weights_only=True)
    odd = [{"step": 1}, {**state, "step": 10**6}, {**state, "modules": {}}, {**state, "seconds": "long"}, 1]
    for i, value in enumerate(odd):
        with pytest.raises(RunFailed, match="is of another training"):
            targets.restored(tmp_path / str(i), saved(value))


# Arrays, tables, the cache, a search


def test_text_in_an_array_that_is_no_text(tmp_path):
    """numpy raised a SystemError."""
    names = np.array(["a", "b", "a", "b"])
    names.view(np.uint32)[0] = 0x110000
    np.savez(tmp_path / "a.npz", x=np.eye(4), y=names)
    with pytest.raises(UserError, match="plain arrays"):
        load(str(tmp_path / "a.npz"))


def test_a_row_of_five_thousand_digits(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text(f"row,label\n{'9' * 5000},0\n")
    with pytest.raises(UserError, match="which is not a training image"):
        add_labels(load(str(targets.tiny())), table)


def test_a_cache_of_other_files_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("AFDA_CACHE", str(tmp_path))
    good = load_images(targets.pictures())
    (about,) = tmp_path.rglob("about.json")
    held = json.loads(about.read_text())
    for rows in ([["other.png", *row[1:]] for row in held["rows"]], held["rows"][1:], [[{}] * 5], [[1]]):
        about.write_text(json.dumps(held | {"rows": rows}))
        again = load_images(targets.pictures())
        assert (again.files, again.train.paths) == (good.files, good.train.paths)
        assert again.train.x.equal(good.train.x)


def test_a_search_that_is_no_data_base(tmp_path):
    (tmp_path / "study.db").write_bytes(b"SQLite format 3\0" + bytes(500))
    with pytest.raises(RunFailed, match=r"study\.db cannot be used"):
        open_study(tmp_path, targets.recipe_of_tiny(), 1, {"steps": [1.0]})


# Names on the screen


def test_control_characters_are_written_out():
    assert printable("a\x1b[2J\n\u202eb\udcff [red] é\u3000") == "a\\x1b[2J\\n\\u202eb\\udcff [red] é\u3000"


def test_names_do_nothing_to_the_terminal(tmp_path, monkeypatch, capsys):
    """Folders named like escape sequences and markup, through the commands that print them."""
    odd = ("\x1b[2J\x1b]0;title\x07", "[red]x[/blue]", "\udcff\u202e")
    for k, name in enumerate(odd):
        for i in range(6):
            targets.written(tmp_path / "[/x]\x1b[31m" / name / f"{name}{i}.png", targets.image("PNG", "L", 6 * k + i))
        targets.written(tmp_path / "[/x]\x1b[31m" / name / "bad.png", bytes([k]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFDA_CACHE", str(tmp_path / "cache"))

    def said(*arguments):
        monkeypatch.setattr(sys, "argv", ["afda", *arguments])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        shown = capsys.readouterr()
        assert "\x1b" not in shown.out + shown.err
        assert "Traceback" not in shown.err
        return code or 0, shown.out + shown.err

    folder = "[/x]\x1b[31m"
    code, text = said("check", folder)
    assert code == 0  # there are no unlabelled images, so the labels alone are compared
    assert "[red]x[/blue]" in text
    assert "\\x1b[2J" in text
    settings = ("--steps", "4", "--net", "mlp", "--method", "supervised", "--align", "none", "--no-baseline")
    assert said("train", folder, *settings, "--out", "[/x]\x1b[1m")[0] == 0
    for command in (
        ("evaluate", "[/x]\x1b[1m", folder),
        ("report", "[/x]\x1b[1m"),
        ("predict", "[/x]\x1b[1m", folder),
    ):
        said(*command)
    assert said("train", "\x1b[2J")[0] == 2
    assert Run(tmp_path / "[/x]\x1b[1m").finished
