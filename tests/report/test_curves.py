from afda.recipe import Recipe
from afda.registry import Metric
from afda.report.curves import describe_names, list_declared_metrics, read_bound_curves, read_curves, read_warnings
from afda.runs.log import LogLine

LOG = [
    LogLine(step=5, values={"supervised": 1.5, "mu": 0.1, "odd": 7.0}, seconds=2.0),
    LogLine(step=9, values={"supervised": 1.25, "mmd2": None}, bound={"gap": 2.0}, warning="It collapsed."),
    LogLine(step=10, bound=None),
]


def test_every_number_of_the_log_is_a_curve():
    assert read_curves(LOG) == {"supervised": [(5, 1.5), (9, 1.25)], "mu": [(5, 0.1)], "odd": [(5, 7.0)]}
    assert read_curves(LOG, {"5": 12.0, "9": 8.0})["test_error"] == [(5, 12.0), (9, 8.0)]
    assert read_bound_curves(LOG) == {"gap": [(9, 2.0)]}
    assert read_warnings(LOG) == ["After 9 updates: It collapsed."]


def test_a_metric_is_shown_as_it_is_declared():
    declared = {"mask": Metric(name="mask", label="Mask rate", description="Share.", unit="share", direction="higher")}
    declared["loss"] = Metric(name="loss", label="loss", description="A term.", term=True)
    metrics = describe_names(["odd", "mask", "odd", "loss"], declared)
    assert list(metrics) == ["loss", "mask", "odd"]  # terms, metrics, unknown numbers
    assert metrics["mask"] is declared["mask"]
    # A number of a plug-in that is no longer installed stands under its name.
    assert (metrics["odd"].label, metrics["odd"].description, metrics["odd"].unit) == ("odd", "", "")


def test_plugins_declare_metrics(monkeypatch):
    recipe = Recipe.of({"data": "digits", "net": "mlp", "method": ["supervised"], "align": "mmd", "steps": 1})
    added = Metric(name="mask", label="Mask rate", description="Share of confident images.")
    monkeypatch.setattr(type(recipe.method[0]), "metrics", (added,))
    assert list_declared_metrics(recipe)["mask"] is added
    assert list_declared_metrics(recipe)["test_error"].unit == "%"
