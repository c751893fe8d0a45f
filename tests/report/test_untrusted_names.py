"""Files and classes whose names are HTML or scripts: pages and tables show them as text."""

import csv

import pytest
from PIL import Image

from afda.data import load
from afda.experiments import tables
from afda.experiments.comparison import Row
from afda.experiments.study import Trial
from afda.experiments.tune import write_page
from afda.machine.runtime import select_runtime
from afda.recipe import Recipe
from afda.recipes import recipe
from afda.report.write import write_report
from afda.runs.inputs import find_items
from afda.runs.model import load_model
from afda.runs.predict import predict_items, predict_to_file
from afda.training.run import train

CLASSES = ("<img src=x onerror=alert(1)>", "=1+1 {{script}} 'q' \"q\"", "<", "\u202eltr\u200f\n<b>\udcff")
"""The third holds `script>...`, so that a path reads `</script>`."""
FILES = "script><script>alert(2)<", "<svg onload=alert(3)>.png", "javascript:alert(4)&amp;\u2028.png"


@pytest.fixture(scope="module")
def named(tmp_path_factory, digits):
    """A run on such files, its page and its data."""
    root = tmp_path_factory.mktemp("names") / "<i>data<script>"
    for k, name in enumerate(CLASSES):
        rows = (digits.train.y == k).nonzero().flatten().tolist()
        for i, row in enumerate(rows[:36]):
            folder = root / (name if i < 24 else "unlabeled")
            path = folder / FILES[0] / f"{k}-{i}.png" if i % 3 == 0 else folder / f"{k}-{i}{FILES[i % 3]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(digits.train.x[row, 0].numpy()).save(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AFDA_CACHE", str(root.parent / "cache"))
        data = load(str(root))
        made = recipe("own-images", data).with_settings(["steps=6", "net=mlp"])
        run = train(made, data, root.parent / "<b>run</b>{{title}}", on=select_runtime("cpu")).path
        return run, write_report([run], select_runtime("cpu"))[0], data


def test_names_in_the_report(opened, named):
    _, made, data = named
    tab = opened(made)  # which fails if there is a dialog, a complaint of the browser, or a request
    assert tab.locator("script").count() == 2
    assert tab.locator("svg[onload], img[onerror], b, i:not(.chip i)").count() == 0
    tab.select_option("#colour", "true")
    shown = tab.locator(".chip").all_text_contents()
    assert shown[0] == min(CLASSES)
    assert CLASSES[0] in shown
    assert any("</script><script>alert(2)" in name for name in data.train.paths)
    tab.locator(".chip").last.focus()
    tab.keyboard.press("Tab")  # into the embedding, whose tip names a file
    for _ in range(12):
        tab.keyboard.press("ArrowRight")
    assert ".png" in tab.inner_text(".tip")
    for details in tab.locator("summary").all():
        details.click()
    for picture in tab.locator("#mistakes li, #label-next li").all()[:6]:
        picture.hover()
    assert "<b>run</b>{{title}}" in tab.inner_text("body")


def plain_page(chromium, path):
    """Open a page that has no script, check that it requests nothing, and return its text."""
    context = chromium.new_context()
    tab, events = context.new_page(), []
    tab.on("dialog", lambda dialog: (events.append(dialog.message), dialog.dismiss()))
    tab.on("request", lambda request: events.append(request.url))
    tab.goto(path.as_uri())
    tab.wait_for_timeout(100)
    text = tab.inner_text("body")
    assert tab.locator("script, b, [onerror], [onload]").count() == 0
    context.close()
    assert [event for event in events if event != path.as_uri() and not event.startswith("data:")] == []
    return text


def test_names_in_the_pages_of_searches_and_tables(chromium, tmp_path):
    odd = "<img src=x onerror=alert(1)><b>$x$"
    made = Recipe.of({"data": odd, "net": "mlp", "method": ["supervised"], "steps": 1})
    assert odd in plain_page(chromium, write_page([Trial({"labelled_batch": 2.0}, 1.0)], made, tmp_path, ""))
    row = Row(None, odd, None, 1, "<b>", "test_error_pct")
    path = tmp_path / "table.html"
    path.write_text(tables.render_page(odd, f"Made by: {odd}", tables.format_rows([row])), encoding="utf-8")
    assert plain_page(chromium, path).count(odd) == 3


def test_a_table_of_predictions_names_files_and_classes_exactly(named, tmp_path):
    """Also those that a spreadsheet would take for a formula: a file is not found under a changed name."""
    run, _, data = named
    model, shape = load_model(run)
    items = find_items([data.source], print)
    rows = [row.to_row() for row in predict_items(model, shape, items, select_runtime("cpu"), print)]
    predict_to_file(run, [data.source], tmp_path / "out.csv", runtime=select_runtime("cpu"))
    with open(tmp_path / "out.csv", newline="", encoding="utf-8", errors="surrogateescape") as file:
        found = list(csv.DictReader(file))
    assert [row["path"] for row in found] == [row["path"] for row in rows]
    assert [row["label"] for row in found] == [row["label"] for row in rows]
    assert {name.removeprefix("p_") for name in found[0] if name.startswith("p_")} == set(model.classes)
