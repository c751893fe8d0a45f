"""The page as a reader sees it, in a real browser."""

import base64
import json
import os
import re
from pathlib import Path

import pytest

from afda.report.page import as_data, page
from afda.runs import Run

DOCS = Path(__file__).parents[2] / "docs"


def text(tab, selector):
    return tab.inner_text(selector).replace("\u00a0", " ").replace("−", "-")


def place(tab, point):
    """Where a point of the map is in the window."""
    tab.locator("canvas.map").scroll_into_view_if_needed()
    tab.wait_for_timeout(60)
    k, x, y = map(float, tab.get_attribute("canvas.map", "data-view").split())
    box = tab.locator("canvas.map").bounding_box()
    return box["x"] + point[0] * k + x, box["y"] + point[1] * k + y


def alone(points, least):
    """A point with no other near it, so that pointing at it cannot mean another."""
    far = lambda a, b: max(abs(a[0] - b[0]), abs(a[1] - b[1])) > least  # noqa: E731
    return next(i for i, a in enumerate(points) if all(far(a, b) for j, b in enumerate(points) if j != i))


def test_values_cannot_leave_their_element():
    written = as_data({"a": "</script><!-- & \u2028"})
    assert not set(written) & set("<>&\u2028")
    assert json.loads(written) == {"a": "</script><!-- & \u2028"}


def test_a_value_is_no_mark():
    values = {"title": "{{script}} <b>", "summary": ["{{values}} & <i>"], "runs": []}
    made = page(values)
    assert "<title>{{script}} &lt;b&gt;</title>" in made
    assert "<p>{{values}} &amp; &lt;i&gt;</p>" in made


def test_size(page_file):
    assert page_file.stat().st_size < 20e6


def test_the_numbers(opened, page_file, runs):
    tab = opened(page_file)
    for i, run in enumerate(runs):
        tab.select_option("#run", str(i))
        result = Run(run).result()
        assert text(tab, "#error") == f"{result['test_error']:.2f} %"
        facts = dict(
            zip(tab.locator(".facts dt").all_inner_texts(), tab.locator(".facts dd").all_inner_texts(), strict=True)
        )
        facts = {key: value.replace("\u00a0", " ").replace("−", "-") for key, value in facts.items()}
        assert facts["labelled images"] == str(result["labels"])
        assert facts["labelled error"] == f"{result['labelled_error']:.2f} %"
        assert facts["MMD² × 10³"] == f"{1000 * result['mmd2']:.2f}"
        rows = tab.locator(".classes tbody tr td:nth-child(3)").all_inner_texts()
        errors = [f"{e:.1f}\u00a0%" for e in result["test"]["class_errors"].values()]
        assert rows == [f"{result['test_error']:.2f}\u00a0%", *errors]
        cells = tab.locator(".matrix tbody td").all_inner_texts()
        assert [0 if c == "·" else int(c) for c in cells] == [n for row in result["test"]["confusion"] for n in row]
        compared = text(tab, f"#runs tr[data-run='{i}']").split("\t")
        assert compared[1] == f"{result['test_error']:.2f}"


def test_the_verdict(opened, page_file, values):
    tab = opened(page_file)
    found = values["runs"][0]["versus"]
    assert text(tab, "#outcome") == found["words"][1]
    assert found["outcome"] in tab.get_attribute("#outcome", "class")
    assert f"{values['runs'][0]['reliability']['before']['ece']:.2f} %" in text(tab, "#ece")
    assert f"Discriminator: {values['runs'][0]['discriminator']['state']}." in text(tab, "#light")


def test_seeds_are_named_together(opened, values, tmp_path):
    """With several seeds no single one, perhaps the luckiest, stands for all."""
    first = values["runs"][0]
    group = {**values["groups"][0], "runs": [0, 1], "test_error": 12.25, "test_error_std": 1.5}
    path = tmp_path / "seeds.html"
    path.write_text(page({**values, "groups": [group], "runs": [first, {**first, "seed": 1}]}), encoding="utf-8")
    tab = opened(path)
    assert "one of 2 seeds; over all of them the error is 12.25 ± 1.50 %" in text(tab, "#seeds")
    assert "12.25 ± 1.50" in text(tab, "#runs tr.mean")


def test_every_curve_is_there(opened, page_file, values):
    titles = set(opened(page_file).locator("#training h3").all_inner_texts())
    assert {"Supervised term", "Consistency term", "Entropy term", "Alignment term", "Learning rate"} <= titles
    assert {"Weight of the alignment, µ", "Accuracy of the discriminator"} <= titles
    assert len(values["runs"][0]["curves"]["bound"]) == 7


def test_pointing_shows_the_image(opened, page_file, values, digits):
    tab = opened(page_file)
    told = values["runs"][0]["map"]
    point = alone(told["points"], 250)
    tab.mouse.move(*place(tab, told["points"][point]))
    tab.wait_for_selector(".tip:not([hidden])")
    assert tab.get_attribute(".tip", "data-point") == str(point)
    pixels = tab.eval_on_selector(
        ".tip canvas", "(c) => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    row = digits.train.rows.tolist().index(int(told["names"][point].removeprefix("image ")))
    assert pixels[::4] == digits.train.x[row, 0].flatten().tolist()
    assert digits.classes[told["predicted"][point]] in text(tab, ".tip")


def test_mistakes_and_what_to_label_are_the_right_pictures(opened, page_file, values, digits):
    tab = opened(page_file)
    told, coming = values["runs"][0]["mistakes"], values["next"]
    read = (
        "(all) => all.map((c) => [...c.getContext('2d').getImageData(0, 0, 8, 8).data].filter((_, i) => i % 4 === 0))"
    )
    shown = tab.eval_on_selector_all("#mistakes .gallery canvas", read)
    assert shown == digits.test.x[told["images"], 0].flatten(1).tolist()
    shown = tab.eval_on_selector_all("#next .gallery canvas", read)
    place = {row: i for i, row in enumerate(digits.train.rows.tolist())}
    assert shown == digits.train.x[[place[row] for row in coming["rows"]], 0].flatten(1).tolist()
    assert coming["names"] == [f"image {row}" for row in coming["rows"]]


def test_filter_and_colours(opened, page_file, values):
    tab = opened(page_file)
    told = values["runs"][0]["map"]
    picture = "(c) => c.toDataURL()"

    def drawn():
        tab.wait_for_timeout(80)
        return tab.eval_on_selector("canvas.map", picture)

    seen = {drawn()}
    for way in ("predicted", "confidence", "answer"):
        tab.select_option("#colour", way)
        seen.add(drawn())
    assert len(seen) == 4
    tab.select_option("#colour", "true")
    tab.click(".chip[data-class='3']")
    left = sum(k != 3 for k in told["true"])
    assert text(tab, "#map-count") == f"{left} of 450 images shown"
    assert tab.get_attribute(".chip[data-class='3']", "aria-pressed") == "false"
    # What is not shown cannot be pointed at.
    point = next(i for i, k in enumerate(told["true"]) if k == 3)
    tab.mouse.move(*place(tab, told["points"][point]))
    assert tab.get_attribute(".tip", "data-point") != str(point)
    tab.click("[aria-label='hide all classes']")
    assert text(tab, "#map-count") == "0 of 450 images shown"
    tab.click("[aria-label='show all classes']")
    tab.select_option("#show", "labelled")
    assert text(tab, "#map-count") == "50 of 450 images shown"


def test_keyboard(opened, page_file, values):
    tab = opened(page_file)
    told = values["runs"][0]["map"]
    # By the keyboard alone: from the last control before the map into it.
    tab.locator(".chip").last.focus()
    tab.keyboard.press("Tab")
    first = int(tab.get_attribute(".tip", "data-point"))
    tab.keyboard.press("ArrowRight")
    second = int(tab.get_attribute(".tip", "data-point"))
    assert told["points"][second][0] > told["points"][first][0]
    assert told["names"][second] in text(tab, ".tip")
    assert told["names"][second] in tab.text_content("#map-live")
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("ArrowDown")
    assert told["points"][int(tab.get_attribute(".tip", "data-point"))][1] > told["points"][second][1] - 5000
    before = tab.get_attribute("canvas.map", "data-view").split()[0]
    tab.keyboard.press("+")
    tab.wait_for_timeout(60)
    after = tab.get_attribute("canvas.map", "data-view").split()[0]
    assert float(after) == pytest.approx(1.5 * float(before))
    tab.keyboard.press("Escape")
    assert tab.locator(".tip").is_hidden()
    # A curve is read by the arrows too.
    tab.locator("#training svg[tabindex]").first.focus()
    tab.keyboard.press("ArrowLeft")
    assert re.match(r"\d+: ", tab.locator("#training .readout").first.inner_text())


def test_zoom(opened, page_file):
    tab = opened(page_file)
    tab.locator("canvas.map").scroll_into_view_if_needed()
    tab.click("[aria-label='zoom in']")
    tab.wait_for_timeout(60)
    first = tab.get_attribute("canvas.map", "data-view")
    box = tab.locator("canvas.map").bounding_box()
    tab.mouse.move(box["x"] + 300, box["y"] + 200)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 350, box["y"] + 220, steps=3)
    tab.mouse.up()
    tab.wait_for_timeout(60)
    k, x, y = map(float, first.split())
    moved = tab.get_attribute("canvas.map", "data-view").split()
    assert list(map(float, moved)) == pytest.approx([k, x + 50, y + 20])


def test_strange_names_are_text(opened, strange_run, strange_page):
    tab = opened(strange_page)
    tab.select_option("#colour", "true")  # where few labels are known, predicted classes are shown at first
    shown = tab.locator(".chip").all_text_contents()
    assert shown == [*Run(strange_run).read_json("model.json")["classes"], "unknown"]
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
    assert tab.locator("#next li").count() > 0


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_and_wide_light_and_dark(opened, page_file, strange_page, width, scheme):
    for path in (page_file, strange_page):
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
    """Whatever is put into the page, the browser runs the script whose checksum it was told."""
    content = page_file.read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', content)[1]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    allowed = re.search(r"script-src 'sha256-([^']+)'", policy)[1]
    assert len(base64.b64decode(allowed)) == 32
    assert len(re.findall(r"(?:src|href)=\"(?!data:|#)", content)) == 0


def test_screenshots_for_the_docs(opened, page_file, tmp_path):
    """AFDA_SCREENSHOTS=run/report.html makes docs/images anew from that page; otherwise nothing is kept."""
    page = os.environ.get("AFDA_SCREENSHOTS")
    folder = DOCS / "images" if page else tmp_path
    tab = opened(Path(page).resolve() if page else page_file)
    tab.wait_for_timeout(500)
    for section in ("verdict", "map"):
        tab.locator(f"#{section}").screenshot(path=folder / f"report-{section}.png")
        assert (folder / f"report-{section}.png").stat().st_size > 10_000
