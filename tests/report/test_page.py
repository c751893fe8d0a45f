"""The page as a reader sees it, in a browser."""

import base64
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from afda.report.collect import MetricText, Report
from afda.report.groups import Average
from afda.report.page import encode_values, render_page
from afda.runs.directory import Run

DOCS = Path(__file__).parents[2] / "docs"


def text(tab, selector):
    return tab.inner_text(selector).replace("\u00a0", " ").replace("−", "-")


def place(tab, point):
    """Return where a point of the embedding is in the window."""
    tab.locator("canvas.embedding").scroll_into_view_if_needed()
    tab.wait_for_timeout(60)
    k, x, y = map(float, tab.get_attribute("canvas.embedding", "data-view").split())
    box = tab.locator("canvas.embedding").bounding_box()
    return box["x"] + point[0] * k + x, box["y"] + point[1] * k + y


def alone(points, least):
    """Return a point with no other near it, so that pointing at it is unambiguous."""
    far = lambda a, b: max(abs(a[0] - b[0]), abs(a[1] - b[1])) > least  # noqa: E731
    return next(i for i, a in enumerate(points) if all(far(a, b) for j, b in enumerate(points) if j != i))


def test_values_cannot_leave_their_element():
    written = encode_values({"a": "</script><!-- & \u2028"})
    assert not set(written) & set("<>&\u2028")
    assert json.loads(written) == {"a": "</script><!-- & \u2028"}


def test_a_value_is_no_placeholder():
    made = render_page(Report("{{script}} <b>", ["{{values}} & <i>"], "", 0, [], [], {}, None, []))
    assert "<title>{{script}} &lt;b&gt;</title>" in made
    assert "<p>{{values}} &amp; &lt;i&gt;</p>" in made


def test_size(page_file):
    assert page_file.stat().st_size < 20e6


def test_the_numbers(opened, page_file, runs):
    tab = opened(page_file)
    for i, run in enumerate(runs):
        tab.select_option("#run", str(i))
        result = Run(run).read_result()
        assert text(tab, "#error") == f"{result.test_error:.2f} %"
        facts = dict(
            zip(tab.locator(".facts dt").all_inner_texts(), tab.locator(".facts dd").all_inner_texts(), strict=True)
        )
        facts = {key: value.replace("\u00a0", " ").replace("−", "-") for key, value in facts.items()}
        assert facts["labelled images"] == str(result.labels)
        assert facts["labelled error (%)"] == f"{result.labelled_error:.2f}"
        assert facts["MMD² × 10³"] == f"{1000 * result.mmd2:.2f}"
        rows = tab.locator(".classes tbody tr td:nth-child(3)").all_inner_texts()
        errors = [f"{e:.1f}\u00a0%" for e in result.test.class_errors.values()]
        assert rows == [f"{result.test_error:.2f}\u00a0%", *errors]
        cells = tab.locator(".matrix tbody td").all_inner_texts()
        assert [0 if c == "·" else int(c) for c in cells] == [n for row in result.test.confusion for n in row]
        compared = text(tab, f"#runs tr[data-run='{i}']").split("\t")
        assert compared[1] == f"{result.test_error:.2f}"


def test_the_verdict(opened, page_file, content):
    tab = opened(page_file)
    run = content.runs[0]
    assert text(tab, "#outcome") == run.comparison.sentences[1]
    assert run.comparison.outcome in tab.get_attribute("#outcome", "class")
    assert f"{run.calibration.before.ece:.2f} %" in text(tab, "#ece")
    assert f"Discriminator: {run.discriminator.state}." in text(tab, "#light")


def test_model_selection(opened, chosen_page, chosen_content, chosen_run):
    tab = opened(chosen_page)
    selection, (run,) = Run(chosen_run).read_selection(), chosen_content.runs
    assert text(tab, "#selection p:has(#chosen)") == f"{selection.chosen} was taken: {selection.reason}."
    assert text(tab, "#judgement") == selection.judge().sentence
    lines = [line.split("\t") for line in text(tab, ".candidates tbody").replace("\n\t", "\t").splitlines()]
    assert text(tab, ".candidates tbody tr.chosen").startswith(f"{selection.chosen} (chosen)")
    shown = " ".join(cell for line in lines for cell in line)
    for candidate in selection.candidates:
        assert candidate.summary in shown
        assert f"{selection.estimate(candidate).error:.1f} %" in shown
    assert "cross-validated error on the labelled images" in text(tab, ".hero")
    assert "among the labelled ones, by trainings without their labels" in text(tab, "#mistakes")
    assert "held-out predictions for labelled images" in text(tab, "#calibration") or run.calibration.after is None
    assert "test set" not in text(tab, "#mistakes, #confusion, #calibration")


def test_class_shares(opened, page_file, chosen_page, chosen_content):
    tab = opened(chosen_page)
    shares = chosen_content.runs[0].shares
    assert text(tab, "#distance").startswith(f"{100 * shares.distance:.0f} % of the predictions")
    assert (tab.locator("#shares .missing").count() == 1) == shares.doubtful
    cells = tab.locator("#shares tbody td:nth-child(4)").all_inner_texts()
    assert cells == [f"{100 * share:.1f}\u00a0%" for share in shares.predicted]


def test_headings(opened, page_file):
    tab = opened(page_file)
    headings = tab.locator("h2").all_inner_texts()
    assert headings == [
        "Comparison with the labels alone",
        *("Comparison of runs", "Training curves", "Discriminator", "Risk bound (Theorem 1)", "Embedding"),
        *("Class shares", "Confusion matrix", "Calibration", "Mistakes", "Label these next", "Reproducing this run"),
    ]
    assert tab.locator("h2 + .question").count() == len(headings)
    links = tab.locator("nav a")
    assert links.all_inner_texts() == headings[1:]
    for link in links.all():
        assert tab.locator(link.get_attribute("href")).count() == 1


def test_seeds_are_named_together(opened, content, tmp_path):
    """With several seeds no single one, perhaps the luckiest, stands for all."""
    first = content.runs[0]
    group = replace(content.groups[0], runs=[0, 1], results={"test_error": Average(12.25, 1.5)})
    path = tmp_path / "seeds.html"
    changed = replace(content, groups=[group], runs=[first, replace(first, seed=1)])
    path.write_text(render_page(changed), encoding="utf-8")
    tab = opened(path)
    assert "one of 2 seeds; the mean error over all of them is 12.25 ± 1.50 %" in text(tab, "#seeds")
    assert "12.25 ± 1.50" in text(tab, "#runs tr.mean")


def test_every_logged_number_has_a_chart(opened, page_file, content):
    tab = opened(page_file)
    titles = tab.locator("#training figure h3").all_text_contents()
    curves = {name for run in content.runs for name in run.curves} - {"discriminator_accuracy"}
    assert len(titles) == len(curves)
    assert all(any(title.startswith(content.metrics[name].label) for title in titles) for name in curves)
    assert text(tab, "#discriminator figure h3") == "Accuracy of the discriminator (%)"


def test_a_metric_is_shown_as_it_is_declared(opened, content, tmp_path):
    """Also one of a method that this package does not know."""
    first = content.runs[0]
    curves = {"mask": [(1, 0.25), (40, 0.75)], "gone": [(1, 3.0), (40, 2.0)]}
    metrics = {
        "mask": MetricText("Mask rate", "Share of confident images.", "share", "higher", False),
        "gone": MetricText("gone", "", "", "none", True),
    }
    run = replace(first, curves=first.curves | curves, results=first.results | {"mask": 0.75})
    path = tmp_path / "metric.html"
    changed = replace(content, metrics=content.metrics | metrics, runs=[run, content.runs[1]])
    path.write_text(render_page(changed), encoding="utf-8")
    tab = opened(path)
    chart = tab.locator("#training figure", has=tab.locator("h3", has_text="Mask rate"))
    assert chart.locator("h3").inner_text() == "Mask rate (%) higher is better"
    assert chart.locator("figcaption").inner_text() == "Share of confident images."
    assert "from 25 to 75" in chart.locator("svg").get_attribute("aria-label")
    fact = tab.locator(".facts div", has_text="Mask rate (%)")
    assert fact.locator("dd").inner_text() == "75.0"
    assert fact.get_attribute("title") == "Share of confident images. Higher is better."
    assert tab.locator("#runs th", has_text="Mask rate (%)").get_attribute("title") == fact.get_attribute("title")
    assert tab.locator("#training h3", has_text="Loss terms").count() == 1
    assert tab.locator("#training figure h3", has_text="gone").inner_text() == "gone"


def test_pointing_shows_the_image(opened, page_file, content, digits):
    tab = opened(page_file)
    expected = content.runs[0].embedding
    point = alone(expected.points, 250)
    tab.mouse.move(*place(tab, expected.points[point]))
    tab.wait_for_selector(".tip:not([hidden])")
    assert tab.get_attribute(".tip", "data-point") == str(point)
    pixels = tab.eval_on_selector(
        ".tip canvas", "(c) => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    row = digits.train.rows.tolist().index(int(expected.names[point].removeprefix("image ")))
    assert pixels[::4] == digits.train.x[row, 0].flatten().tolist()
    assert digits.classes[expected.predicted[point]] in text(tab, ".tip")


def test_mistakes_and_what_to_label_are_the_right_pictures(opened, page_file, content, digits):
    tab = opened(page_file)
    expected, coming = content.runs[0].mistakes, content.label_next
    read = (
        "(all) => all.map((c) => [...c.getContext('2d').getImageData(0, 0, 8, 8).data].filter((_, i) => i % 4 === 0))"
    )
    shown = tab.eval_on_selector_all("#mistakes .gallery canvas", read)
    assert shown == digits.test.x[expected.images, 0].flatten(1).tolist()
    shown = tab.eval_on_selector_all("#label-next .gallery canvas", read)
    place = {row: i for i, row in enumerate(digits.train.rows.tolist())}
    assert shown == digits.train.x[[place[row] for row in coming.rows], 0].flatten(1).tolist()
    assert coming.names == [f"image {row}" for row in coming.rows]


def test_filter_and_colours(opened, page_file, content):
    tab = opened(page_file)
    expected = content.runs[0].embedding
    picture = "(c) => c.toDataURL()"

    def drawn():
        tab.wait_for_timeout(80)
        return tab.eval_on_selector("canvas.embedding", picture)

    seen = {drawn()}
    for way in ("predicted", "confidence", "answer"):
        tab.select_option("#colour", way)
        seen.add(drawn())
    assert len(seen) == 4
    tab.select_option("#colour", "true")
    tab.click(".chip[data-class='3']")
    left = sum(k != 3 for k in expected.true)
    assert text(tab, "#embedding-count") == f"{left} of 450 images shown"
    assert tab.get_attribute(".chip[data-class='3']", "aria-pressed") == "false"
    # What is not shown cannot be pointed at.
    point = next(i for i, k in enumerate(expected.true) if k == 3)
    tab.mouse.move(*place(tab, expected.points[point]))
    assert tab.get_attribute(".tip", "data-point") != str(point)
    tab.click("[aria-label='hide all classes']")
    assert text(tab, "#embedding-count") == "0 of 450 images shown"
    tab.click("[aria-label='show all classes']")
    tab.select_option("#show", "labelled")
    assert text(tab, "#embedding-count") == "50 of 450 images shown"


def test_keyboard(opened, page_file, content):
    tab = opened(page_file)
    expected = content.runs[0].embedding
    # By the keyboard alone: from the last control before the embedding into it.
    tab.locator(".chip").last.focus()
    tab.keyboard.press("Tab")
    first = int(tab.get_attribute(".tip", "data-point"))
    tab.keyboard.press("ArrowRight")
    second = int(tab.get_attribute(".tip", "data-point"))
    assert expected.points[second][0] > expected.points[first][0]
    assert expected.names[second] in text(tab, ".tip")
    assert expected.names[second] in tab.text_content("#embedding-live")
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("ArrowDown")
    assert expected.points[int(tab.get_attribute(".tip", "data-point"))][1] > expected.points[second][1] - 5000
    before = tab.get_attribute("canvas.embedding", "data-view").split()[0]
    tab.keyboard.press("+")
    tab.wait_for_timeout(60)
    after = tab.get_attribute("canvas.embedding", "data-view").split()[0]
    assert float(after) == pytest.approx(1.5 * float(before))
    tab.keyboard.press("Escape")
    assert tab.locator(".tip").is_hidden()
    # A curve is read by the arrows too.
    tab.locator("#training svg[tabindex]").first.focus()
    tab.keyboard.press("ArrowLeft")
    assert re.match(r"\d+: ", tab.locator("#training .readout").first.inner_text())


def test_zoom(opened, page_file):
    tab = opened(page_file)
    tab.locator("canvas.embedding").scroll_into_view_if_needed()
    tab.click("[aria-label='zoom in']")
    tab.wait_for_timeout(60)
    first = tab.get_attribute("canvas.embedding", "data-view")
    box = tab.locator("canvas.embedding").bounding_box()
    tab.mouse.move(box["x"] + 300, box["y"] + 200)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 350, box["y"] + 220, steps=3)
    tab.mouse.up()
    tab.wait_for_timeout(60)
    k, x, y = map(float, first.split())
    moved = tab.get_attribute("canvas.embedding", "data-view").split()
    assert list(map(float, moved)) == pytest.approx([k, x + 50, y + 20])


def test_strange_names_are_text(opened, strange_run, strange_page):
    tab = opened(strange_page)
    tab.select_option("#colour", "true")  # where few labels are known, predicted classes are shown at first
    shown = tab.locator(".chip").all_text_contents()
    assert shown == [*Run(strange_run).read_model_card().classes, "unknown"]
    assert shown[0] == "<script>alert(1)</script>"
    assert tab.locator("b, i:not(.chip i)").count() == 0
    assert text(tab, "#verdict h1").startswith("strange <b>")
    assert "error on the validation set" in text(tab, ".hero")


def test_vectors_have_no_pictures(opened, vector_page):
    tab = opened(vector_page)
    assert tab.locator("[data-picture]").count() == 0
    tab.locator(".chip").last.focus()
    tab.keyboard.press("Tab")
    assert "predicted" in text(tab, ".tip")
    assert tab.locator("#label-next li").count() > 0


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_and_wide_light_and_dark(opened, page_file, strange_page, chosen_page, width, scheme):
    for path in (page_file, strange_page, chosen_page):
        tab = opened(path, width, color_scheme=scheme)
        for details in tab.locator("summary").all():
            details.click()
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        ground = "getComputedStyle(document.body).backgroundColor"
        before = tab.evaluate(ground)
        assert (before == "rgb(22, 24, 27)") == (scheme == "dark")
        tab.click("#theme")
        assert tab.evaluate(ground) != before


def test_no_script_but_its_own_runs(opened, page_file, tmp_path):
    """Whatever is put into the page, the browser runs the script whose checksum it was expected."""
    content = page_file.read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', content)[1]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    allowed = re.search(r"script-src 'sha256-([^']+)'", policy)[1]
    assert len(base64.b64decode(allowed)) == 32
    assert len(re.findall(r"(?:src|href)=\"(?!data:|#)", content)) == 0


def test_screenshots_for_the_docs(opened, chosen_page, tmp_path):
    """AFDA_SCREENSHOTS=run/report.html makes docs/images anew from that page; otherwise nothing is kept.

    The page must be of a run whose method was chosen automatically.
    """
    page = os.environ.get("AFDA_SCREENSHOTS")
    folder = DOCS / "images" if page else tmp_path
    tab = opened(Path(page).resolve() if page else chosen_page)
    tab.wait_for_timeout(500)
    tab.evaluate("document.querySelector('.bar').style.position = 'static'")  # else it covers the heading
    for section, name in {"selection": "report-selection.png", "embedding": "report-map.png"}.items():
        tab.locator(f"#{section}").screenshot(path=folder / name)
        assert (folder / name).stat().st_size > 10_000
