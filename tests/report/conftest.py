"""Two short trainings and their pages, made once, and a browser to open them in."""

import os
import shutil

import numpy as np
import pytest

from afda.data import load
from afda.machine.runtime import select_runtime
from afda.recipes import recipe
from afda.report import embedding
from afda.report.collect import collect_report
from afda.report.page import render_page
from afda.report.write import write_report
from afda.runs.directory import Run
from afda.training.request import TrainRequest
from afda.training.run import train
from afda.training.session import run_training

STRANGE = ("<script>alert(1)</script>", "</script><b>bold", "a & b", '"quoted" \u2028', "{{style}}")
UNLABELLED = 400
"""Unlabelled images in an embedding, for quick tests."""


@pytest.fixture(scope="session")
def machine():
    return select_runtime("cpu", "float32", 1)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="session")
def runs(folder, digits, machine):
    """Aligned and supervised-only with 50 labels of the digits."""
    ways = {"aligned": ("vat+entropy", "adversarial"), "supervised": ("supervised", "none")}
    for name, (method, align) in ways.items():
        made = recipe("digits-demo", digits, method, align).with_settings(["labels=50", "steps=40"])
        train(made, digits, folder / name, on=machine)
    return [folder / name for name in ways]


@pytest.fixture(scope="session")
def copy_run():
    """Copy a run without some of its files, or with another environment."""

    def copy(run, path, without=(), **environment):
        leave = lambda _, names: [n for n in names if n in without or n.startswith("report")]  # noqa: E731
        shutil.copytree(run, path, ignore=leave)
        if environment:
            Run(path).write_json("environment.json", {**Run(path).read_environment().to_dict(), **environment})
        return path

    return copy


@pytest.fixture(scope="session", autouse=True)
def _small_embeddings():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, "UNLABELLED", UNLABELLED)
        yield


@pytest.fixture(scope="session")
def content(runs, machine, _small_embeddings):
    """What the page of both runs shows."""
    return collect_report(runs, machine)


@pytest.fixture(scope="session")
def page_file(runs, folder, machine, content):
    """The page of both runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("afda.report.write.collect_report", lambda *_: content)
        return write_report(runs, machine, folder / "page" / "report.html")[0]


@pytest.fixture(scope="session")
def strange_run(folder, digits, machine):
    """A run on somebody's own arrays whose classes have names that a page could trip over; nothing to test on."""
    x, y = digits.train.x.numpy()[:600], digits.train.y.numpy()[:600]
    x, y = x[y < len(STRANGE), 0], y[y < len(STRANGE)]
    held = np.arange(len(x)) >= 200
    path = folder / "strange <b>.npz"
    labels = np.where(np.arange(200) < 60, y[:200], -1)
    np.savez(path, x=x[:200], y=labels, x_val=x[held], y_val=y[held], classes=np.array(STRANGE))
    data = load(str(path))
    made = recipe("own-images", data).with_settings(["steps=8", "net=mlp"])
    return train(made, data, folder / "<i>run", on=machine).path


@pytest.fixture(scope="session")
def strange_page(strange_run, machine):
    return write_report([strange_run], machine)[0]


@pytest.fixture(scope="session")
def chosen_run(folder, digits):
    """A run of images whose method was chosen by cross-validation, with 2 to 10 labels per class."""
    x, y = digits.train.x.numpy()[:400, 0], digits.train.y.numpy()[:400]
    x, y = x[y < 5], y[y < 5]
    order = np.argsort(y, kind="stable")
    place = np.empty(len(y), dtype=int)
    place[order] = np.concatenate([np.arange(n) for n in np.bincount(y)])
    path = folder / "chosen.npz"
    np.savez(path, x=x, y=np.where(place < np.array([2, 4, 6, 8, 10])[y], y, -1))
    request = TrainRequest(str(path), method="auto", steps=20, out=folder / "chosen", device="cpu", threads=1)
    return run_training(request).path


@pytest.fixture(scope="session")
def chosen_content(chosen_run, machine, _small_embeddings):
    return collect_report([chosen_run], machine)


@pytest.fixture(scope="session")
def chosen_page(chosen_content, folder):
    path = folder / "chosen.html"
    path.write_text(render_page(chosen_content), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def vector_page(folder, digits, machine):
    """The page of a run on vectors, of which there are no pictures."""
    x, y = digits.train.x.numpy()[:300].reshape(300, -1) / 16.0, digits.train.y.numpy()[:300]
    path = folder / "vectors.npz"
    np.savez(path, x=x[:200], y=np.where(np.arange(200) < 80, y[:200], -1), x_test=x[200:], y_test=y[200:])
    data = load(str(path))
    run = train(recipe("own-vectors", data).with_settings(["steps=8"]), data, folder / "vectors", on=machine)
    return write_report([run.path], machine)[0]


@pytest.fixture(scope="session")
def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        message = "no Chromium to open the page in: apt-get install chromium"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = tool.chromium.launch(executable_path=found, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Open a page: it fails the test if the page complains, or asks for anything but itself."""
    contexts, complaints, requests = [], [], []

    def open_page(path, width=1200, **how):
        context = chromium.new_context(viewport={"width": width, "height": 900}, **how)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(path.as_uri())
        tab.wait_for_selector("#reproduce")
        tab.evaluate("Promise.all([...document.images].map((i) => i.decode()))")
        tab.wait_for_timeout(100)
        requests.remove(path.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == []
