import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from afda import __version__, budget, check
from afda.baseline import without_unlabelled
from afda.choices import names
from afda.data import load
from afda.inference import outputs
from afda.listing import settings
from afda.recipe import paths
from afda.recipes import recipe, shelf, summaries
from afda.reproduce import EXPERIMENTS
from afda.runs import CHECKPOINT, Run
from afda.runtime import runtime

SMALL = ["net=mlp", "net.hidden=16", "net.features=8", "align.hidden=8"]
LIGHT = ["labels=20", "labelled_batch=4", "unlabelled_batch=8", *SMALL]
FAST = [part for setting in LIGHT for part in ("--set", setting)] + ["--threads", "1"]


def process(*arguments, **choices):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "afda", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **choices)


def complaint(code, out, err):
    """The one sentence of a user's mistake."""
    assert code == 2, err
    assert out == ""
    assert err.startswith("afda: ")
    assert err.endswith((".\n", "?\n"))
    assert err.count("\n") == 1
    return err


@pytest.fixture(scope="module")
def few(tmp_path_factory, digits):
    """A light data set: 200 digits and a test set."""
    path = tmp_path_factory.mktemp("data") / "few.npz"
    x, y = digits.train.x[:200, 0].numpy(), digits.train.y[:200].numpy()
    np.savez(path, x=x, y=y, x_test=digits.test.x[:50, 0].numpy(), y_test=digits.test.y[:50].numpy())
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory, few):
    """A finished run, what the command printed, and the command."""
    out = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["train", few, "--steps", 20, "--seed", 1, "--out", out, *FAST]
    return out, process(*arguments, "--json"), arguments


# Looking around


def test_help_needs_no_torch():
    check = (
        "import sys; from afda.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'scipy', 'sklearn', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    for arguments in (["--help"], ["train", "--help"], ["--version"], []):
        done = subprocess.run([sys.executable, "-c", check, *arguments], capture_output=True, text=True, check=False)
        assert "AssertionError" not in done.stderr


def test_the_module_is_the_command():
    done = process("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"afda {__version__}\n", "")


def test_help_names_every_command_and_option(afda):
    code, out, _ = afda("--help")
    assert code == 0
    assert all(command in out for command in ("demo", "train", "evaluate", "list"))
    _, out, _ = afda("train", "--help")
    options = "labels method align net steps seed out device precision recipe set resume overwrite json quiet threads"
    assert [o for o in options.split() if f"--{o}" not in out] == []


def test_list(afda):
    code, out, err = afda("list")
    assert (code, err) == (0, "")
    code, text, _ = afda("list", "--json")
    found = json.loads(text)
    for title, there in (
        ("methods", names("methods")),
        ("nets", names("nets")),
        ("alignments", names("align")),
        ("data", names("data.sets")),
        ("recipes", list(shelf())),
        ("settings", list(settings())),
        ("tables", list(EXPERIMENTS)),
    ):
        assert sorted(found[title]) == sorted(there)
        assert all(line and "\n" not in line for line in found[title].values())
        assert all(name in out for name in there)
        assert json.loads(afda("list", title, "--json")[1]) == {title: found[title]}


def test_every_setting_of_every_recipe_is_listed(digits):
    """And a setting that a later one takes back is not said to be changed."""
    known = set(settings())
    for name in set(shelf()) - {"own-vectors"}:
        made = recipe(name, digits, "vat+entropy+pi-model+mean-teacher", labels=50)
        assert {path for path in paths(made.model_dump()) if path not in ("preparation", "optimisation")} <= known
    changes = next(changes for name, _, changes in summaries() if name == "cifar10-ablation-cpu")
    assert [c for c in changes if "optimisation.learning_rate" in c] == ["optimisation.learning_rate=0.003"]


# Training and what it leaves


def test_train_prints_only_json(finished):
    out, done, _ = finished
    assert done.returncode == 0
    printed = json.loads(done.stdout)
    assert printed.pop("run") == str(out)
    baseline, verdict = printed.pop("baseline"), printed.pop("verdict")  # of the run on the labels alone
    assert baseline["test_error"] == json.loads((out / "supervised-only" / "result.json").read_text())["test_error"]
    assert "unlabelled images" in verdict
    assert printed == json.loads((out / "result.json").read_text())
    assert "Traceback" not in done.stderr


def test_run_directory(finished):
    out, _, _ = finished
    promised = {"recipe.json", "environment.json", "log.jsonl", "model.safetensors", "model.json", "result.json"}
    assert promised <= {p.name for p in out.iterdir()}
    result = json.loads((out / "result.json").read_text())
    keys = "test_error val_error mmd2 bound labels seed steps seconds images_per_second"
    assert set(keys.split()) <= set(result)
    assert (result["labels"], result["seed"], result["steps"], result["val_error"]) == (20, 1, 20, None)
    assert [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()] == list(range(1, 21))
    card = json.loads((out / "model.json").read_text())
    assert {"classes", "shape", "normalise", "net"} <= set(card)


def test_evaluate_gives_the_test_error(afda, finished, few):
    out, _, _ = finished
    result = json.loads((out / "result.json").read_text())
    for data in ([], [few]):
        code, text, err = afda("evaluate", out, *data, "--json", "--threads", 1)
        assert (code, err) == (0, "")
        found = json.loads(text)
        assert (found["error"], found["images"]) == (result["test_error"], 50)
        assert found["confusion"] == result["test"]["confusion"]
    code, text, _ = afda("evaluate", out, "digits", "--json", "--threads", 1)
    assert (code, json.loads(text)["images"]) == (0, 500)
    code, text, _ = afda("evaluate", out)
    assert code == 0
    assert f"{result['test_error']:.2f} %" in text


def test_an_existing_run_is_left_alone(afda, finished):
    out, _, arguments = finished
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert "already exists; add --resume" in complaint(*afda(*arguments))
    message = complaint(*afda(*arguments, "--resume", "--set", "optimisation.learning_rate=0.25"))
    assert "optimisation.learning_rate: 0.003 there, 0.25 now" in message
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


def test_resume_of_a_finished_run_prints_its_result(afda, finished):
    _, done, arguments = finished
    code, text, err = afda(*arguments, "--resume", "--json")
    assert (code, text, err) == (0, done.stdout, "")
    code, text, _ = afda(*arguments, "--resume")
    assert code == 0
    assert f"{json.loads(done.stdout)['test_error']:.2f} %" in text
    assert "The run was finished already" in text


def test_the_labels_alone_are_trained_on_in_the_precision_of_the_run(afda, few, tmp_path, monkeypatch):
    def precisions(name):
        paths = tmp_path / name, tmp_path / name / "supervised-only"
        return [Run(path).read_json("environment.json")["precision"] for path in paths]

    options = ("--quiet", "--baseline", "--out")
    assert afda("train", few, *FAST, "--steps", 2, *options, tmp_path / "a", "--precision", "bfloat16")[0] == 0
    assert precisions("a") == ["bfloat16", "bfloat16"]
    shutil.rmtree(tmp_path / "a" / "supervised-only")
    assert afda("train", few, *options, tmp_path / "a", "--resume")[0] == 0
    assert precisions("a") == ["bfloat16", "bfloat16"]
    monkeypatch.setattr("afda.runtime.fast_bfloat16", lambda _: True)
    wide = ("train", few, "--labels", 20, "--set", "net.width=1", "--steps", 2, *options)
    assert afda(*wide, tmp_path / "b")[0] == 0  # with VAT, which gains little from it
    assert precisions("b") == ["float32", "float32"]
    assert afda(*wide, tmp_path / "c", "--method", "mean-teacher")[0] == 0
    assert precisions("c") == ["bfloat16", "bfloat16"]
    tested = []

    def spied(model, x, runtime):
        tested.append(runtime.precision)
        return outputs(model, x, runtime)

    monkeypatch.setattr("afda.evaluate.outputs", spied)
    for name, given in (("b", "auto"), ("c", "auto"), ("c", "float32")):
        assert afda("evaluate", tmp_path / name, "--precision", given)[0] == 0
    monkeypatch.setattr("afda.runtime.fast_bfloat16", lambda _: False)
    assert afda("evaluate", tmp_path / "c")[0] == 0
    assert tested == ["float32", "bfloat16", "float32", "auto"]  # auto is float32 where there is no bfloat16


def test_the_labels_alone_are_timed_in_the_precision_of_the_run(few, monkeypatch):
    monkeypatch.setattr("afda.runtime.fast_bfloat16", lambda _: True)
    data, timed = load(str(few)), []

    def instantly(training):
        timed.append(training.runtime.precision)
        return 1e-6

    for module in (budget, check):
        monkeypatch.setattr(module, "seconds_per_step", instantly)
    made = recipe("own-images", data, labels=20).with_settings(["net=small", "net.width=1"])
    machine = runtime("cpu", "auto")
    budget.steps_within(1, [made, without_unlabelled(made)], data, machine)
    check.expected(made, data, machine)
    assert timed == ["float32"] * 4


def test_a_run_that_goes_on_in_bfloat16_does_not_say_that_it_suits(afda, tmp_path, few):
    out = tmp_path / "run"
    assert afda("train", few, *FAST, "--steps", 2, "--precision", "bfloat16", "--out", out)[0] == 0
    (out / "result.json").unlink()
    code, _, told = afda("train", few, "--out", out, "--resume")
    assert code == 0
    assert "suits this net" not in told
    assert "Nothing is held out" not in told


def test_nothing_held_out_is_told(afda, digits, tmp_path):
    y = np.where(np.arange(100) < 40, digits.train.y[:100], -1)
    np.savez(tmp_path / "few.npz", x=digits.train.x[:100, 0].numpy(), y=y)
    code, _, told = afda("train", tmp_path / "few.npz", "--steps", 2, "--out", tmp_path / "run")
    assert code == 0
    assert "Nothing is held out, so nothing will tell whether the unlabelled images help; see --validation." in told


def test_overwrite(afda, finished, few, tmp_path):
    assert afda("train", few, *FAST, "--steps", 2, "--quiet", "--out", tmp_path / "a") == (0, "", "")
    assert "5 labels cannot cover" in complaint(
        *afda("train", few, *FAST, "--set", "labels=5", "--overwrite", "--out", tmp_path / "a")
    )
    assert Run(tmp_path / "a").result()["steps"] == 2
    code, text, _ = afda("train", few, *FAST, "--steps", 3, "--overwrite", "--json", "--out", tmp_path / "a")
    assert (code, json.loads(text)["steps"]) == (0, 3)


def test_digits_with_the_papers_method_by_default(afda, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = afda("train", "digits", "--steps", 20, "--labels", 30, "--threads", 1)
    assert code == 0
    assert "Recipe digits-demo" in err
    assert "step 20/20" in err
    assert "test error" in out
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name == "digits-vat+entropy-adversarial-30-seed0"
    recipe = Run(run).recipe()
    assert (recipe.steps, recipe.labels, recipe.title) == (20, 30, "vat+entropy-adversarial")


def test_options_reach_the_recipe(afda, few, tmp_path):
    options = [
        "--method=pi-model",
        "--align=mmd",
        "--net=small",
        "--labels=12",
        "--steps=1",
        "--seed=5",
        "--validation",
    ]
    settings = ["--set", "net.width=0.25", "--set", "optimisation.learning_rate=0.002"]
    code, _, _ = afda("train", few, *options, *settings, "--quiet", "--out", tmp_path / "run")
    assert code == 0
    recipe = Run(tmp_path / "run").recipe()
    assert (recipe.title, recipe.net.name(), recipe.net.width) == ("pi-model-mmd", "small", 0.25)
    assert (recipe.labels, recipe.steps, recipe.seed, recipe.validation) == (12, 1, 5, True)
    assert recipe.optimisation.learning_rate == 0.002
    again = ["train", few, "--recipe", tmp_path / "run" / "recipe.json", "--quiet", "--out", tmp_path / "again"]
    assert afda(*again, "--method", "entropy", "--align", "none", "--steps", 2)[0] == 0
    recipe = Run(tmp_path / "again").recipe()
    assert (recipe.title, recipe.steps, recipe.labels) == ("entropy", 2, 12)


def test_names_that_look_like_markup(afda, few, tmp_path):
    data = tmp_path / "[red]a[bold].npz"
    data.write_bytes(few.read_bytes())
    out = tmp_path / "b[" / "x]"
    code, text, err = afda("train", data, *FAST, "--steps", 1, "--out", out)
    assert code == 0, err
    assert "[red]a[bold]" in text
    assert str(out) in text
    code, text, _ = afda("evaluate", out)
    assert (code, str(out) in text) == (0, True)


@pytest.mark.parametrize("name", ["svhn", "digits", "cifar10"])
def test_own_data_with_a_known_name(afda, tmp_path, name):
    np.savez(tmp_path / f"{name}.npz", x=np.random.default_rng(0).normal(size=(40, 5)), y=[0, 1, -1, -1] * 10)
    code, _, err = afda("train", tmp_path / f"{name}.npz", "--steps", 1, "--out", tmp_path / "run")
    assert code == 0
    assert "Recipe own-vectors" in err


# Being stopped


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals(few, tmp_path, number):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "afda", "train", few, "--steps", 50_000, "--out", out, *FAST]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        while running.poll() is None and not (out / CHECKPOINT).exists():
            time.sleep(0.01)
        running.send_signal(number)
        printed, err = running.communicate()
    assert (running.returncode, printed) == (130, "")
    step = Run(out).read_checkpoint()["step"]
    message = f"afda: stopped after {step} of 50000 updates; continue with: afda train {few} --out {out} --resume"
    assert err.splitlines()[-1] == message
    assert "Traceback" not in err
    assert not Run(out).finished


# Mistakes


def bad(afda, tmp_path, *arguments):
    """The complaint about these arguments of `train`; nothing may be left behind."""
    message = complaint(*afda("train", *arguments, "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    return message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digist"], "no folder or data set called 'digist'; did you mean 'digits'?"),
        (["nothing.npz"], "There is no file or folder nothing.npz"),
        (["digits", "--method", "vatt"], "no method called 'vatt'; did you mean 'vat'?"),
        (["digits", "--method", "vat+entorpy"], "no method called 'entorpy'; did you mean 'entropy'?"),
        (["digits", "--method", "vat+vat"], "a method is named twice"),
        (["digits", "--net", "conv_large"], "no net called 'conv_large'; did you mean 'conv-large'?"),
        (["digits", "--align", "adversary"], "no alignment called 'adversary'; did you mean 'adversarial'?"),
        (["digits", "--recipe", "digit-demo"], "no recipe called 'digit-demo'; did you mean 'digits-demo'?"),
        (["digits", "--recipe", "absent.json"], "There is no recipe absent.json"),
        (["digits", "--precision", "float16"], "no precision called 'float16'; did you mean 'bfloat16'?"),
        (["digits", "--device", "cpuu"], "The device 'cpuu' cannot be used on this machine; try --device cpu."),
        (["digits", "--device", "meta"], "The device 'meta' cannot be used"),
        (["digits", "--device", "cuda:77"], "The device 'cuda:77' cannot be used"),
        (["digits", "--labels", "5000"], "5000 labels were asked for, but only 1297 training images have one."),
        (["digits", "--labels", "9"], "9 labels cannot cover the 10 classes"),
        (["digits", "--labels", "1297"], "Every training image has a label"),
        (["digits", "--labels", "900", "--validation"], "ask for fewer --labels"),
        (["digits", "--set", "net.widht=2"], "no setting called 'net.widht'; did you mean 'net.width'?"),
        (["digits", "--set", "foo.bar=2"], "no setting called 'foo.bar'; see afda list settings."),
        (["digits", "--set", "net.width=-2"], "The net small is not valid: width"),
        (["digits", "--set", "steps"], "--set takes path=value"),
        (["digits", "--set", "steps=soon"], "steps: "),
        (["digits", "--set", "data=mnist"], "The recipe is for the data set 'mnist', not 'digits'"),
        (["digits", "--seed", "99999999999"], "seed: "),
    ],
)
def test_mistakes(afda, tmp_path, arguments, words):
    assert words in bad(afda, tmp_path, *arguments)


Y = np.array([0, 1, 2, -1] * 5)
X = np.zeros((20, 8, 8), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": X, "y": Y, "classes": ["a", "b", "c", "d"]}, "class 'd' has no labelled image"),
        ({"x": X, "y": Y + 1, "classes": ["a", "b", "c"]}, "label 3, which is not one of the classes"),
        ({"x": X, "y": Y - 1}, "label -2; give labels from 0 up"),
        ({"x": X, "y": Y, "x_test": X, "y_test": Y + 3}, "y_test has the label"),
        ({"x": X, "y": Y[:5]}, "20 images but 5 labels"),
        ({"x": X, "y": 0 * Y}, "at least 2 classes"),
        ({"x": X}, "has no array 'y'"),
        ({"x": X, "y": np.arange(20) % 3}, "Every training image has a label"),
        ({"x": X[:, :1, :1], "y": Y}, "The net small cannot take inputs of shape (1, 1, 1)"),
        ({"x": X[:0], "y": Y[:0]}, "is empty"),
        ({"x": np.full((20, 4), np.nan), "y": Y}, "not finite"),
    ],
)
def test_arrays_that_will_not_do(afda, tmp_path, arrays, words):
    np.savez(tmp_path / "mine.npz", **arrays)
    assert words in bad(afda, tmp_path, tmp_path / "mine.npz")


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 and then nothing"])
def test_damaged_arrays(afda, tmp_path, content):
    (tmp_path / "mine.npz").write_bytes(content)
    assert "is not a readable .npz file" in bad(afda, tmp_path, tmp_path / "mine.npz")


@pytest.mark.parametrize("content", [b"", b"nonsense" * 100])
def test_damaged_data_sets(afda, tmp_path, monkeypatch, content):
    monkeypatch.setenv("AFDA_DATA", str(tmp_path / "data"))
    for name in ("svhn", "cifar10"):
        (tmp_path / "data" / name).mkdir(parents=True)
    for name in ("train_32x32.mat", "test_32x32.mat"):
        (tmp_path / "data" / "svhn" / name).write_bytes(content)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (tmp_path / "data" / "cifar10" / name).write_bytes(content)
    assert "train_32x32.mat is not a readable SVHN file" in bad(afda, tmp_path, "svhn")
    assert "data_batch_1.bin is not a readable CIFAR-10 file" in bad(afda, tmp_path, "cifar10")


def test_data_sets_that_are_not_there(afda, tmp_path, monkeypatch):
    monkeypatch.setenv("AFDA_DATA", str(tmp_path / "data"))
    for proxy in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    message = bad(afda, tmp_path, "svhn")
    assert "Put train_32x32.mat and test_32x32.mat into" in message
    assert "could not be downloaded" in message
    assert "Put cifar-10-binary.tar.gz into" in bad(afda, tmp_path, "cifar10")


def test_places_that_will_not_do(afda, few, tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("work")
    for out, extra, words in (
        (tmp_path / "file", [], "is a file; choose another --out"),
        (tmp_path / "file" / "run", [], "cannot be written (Not a directory); choose another --out"),
        (tmp_path / ("x" * 300), [], "cannot be written (File name too long)"),
        (tmp_path / "thesis", [], "is not the directory of a run, so it is left alone"),
        (tmp_path / "thesis", ["--resume"], "There is no run to resume in"),
        (tmp_path / "thesis", ["--overwrite"], "is not the directory of a run, so it is left alone"),
    ):
        assert words in complaint(*afda("train", few, *FAST, "--out", out, *extra))
    assert (tmp_path / "file").read_text() == "text"
    assert [p.name for p in (tmp_path / "thesis").iterdir()] == ["chapter"]


def test_evaluate_mistakes(afda, finished, few, tmp_path):
    out, _, _ = finished
    np.savez(tmp_path / "vectors.npz", x=np.eye(4), y=[0, 1, 0, 1])
    np.savez(tmp_path / "strange.npz", x=X, y=np.where(Y == 0, 11, Y))
    for arguments, words in (
        ([tmp_path], "has no readable model.json; is it the directory of a finished run?"),
        ([tmp_path / "nowhere"], "has no readable model.json"),
        ([out, "digist"], "did you mean 'digits'?"),
        ([out, tmp_path / "vectors.npz"], "The model takes inputs of shape (1, 8, 8), but vectors has (4,)"),
        ([out, tmp_path / "strange.npz"], "The model does not know the class '11' of strange"),
    ):
        assert words in complaint(*afda("evaluate", *arguments))
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("model.json", "environment.json"):
        (broken / name).write_bytes((out / name).read_bytes())
    assert "cannot be read" in complaint(*afda("evaluate", broken))
    (broken / "model.safetensors").write_bytes((out / "model.safetensors").read_bytes()[:-9])
    assert "cannot be read" in complaint(*afda("evaluate", broken))


def test_list_mistake(afda):
    assert "did you mean 'methods'?" in complaint(*afda("list", "method"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["train"],
        ["train", "digits", "--steps", "x"],
        ["train", "digits", "--steps", "0"],
        ["train", "digits", "--threads", "0"],
        ["train", "digits", "--nonsense"],
        ["train", "digits", "--out"],
        ["evaluate"],
        ["demo", "--labels", "3"],
        ["nonsense"],
    ],
)
def test_usage(afda, arguments):
    code, out, err = afda(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("afda: ")
    assert err.endswith(" --help.\n")
    assert err.count("\n") == 1


def test_a_mistake_in_a_process_of_its_own(tmp_path):
    done = process("train", "digits", "--labels", "3", cwd=tmp_path)
    assert "ask for at least one per class" in complaint(done.returncode, done.stdout, done.stderr)
    assert os.listdir(tmp_path) == []


def test_a_run_that_fails_says_so_with_1(afda, few, tmp_path):
    diverging = ["--method", "supervised", "--align", "none", "--set", "optimisation.learning_rate=1e36"]
    out = tmp_path / "run"
    light = ["--labels", "20", "--net", "mlp", "--steps", "5"]
    code, text, err = afda("train", few, *light, *diverging, "--quiet", "--out", out)
    assert (code, text) == (1, "")
    assert err.startswith("afda: ")
    assert err.count("\n") == 1
    assert Run(out).read_checkpoint()["step"] == 0
