"""Figures of finished runs."""

import numpy as np
import pytest

from afda.errors import UserError
from afda.experiments.comparison import RunStore
from afda.experiments.figures import Panel, draw_panels
from afda.experiments.illustrate import draw_figure


def test_the_bound_figure_needs_test_errors_during_training(two_sweeps, tmp_path):
    chosen, (one, _) = two_sweeps
    with pytest.raises(UserError, match="no test errors during training"):
        draw_figure("figure-5", chosen, RunStore(one), "cpu", 1, tmp_path / "figure-5")


def test_t_sne_panels(two_sweeps, tmp_path):
    chosen, (one, _) = two_sweeps
    for path in draw_figure("figure-4", chosen, RunStore(one), "cpu", 2, tmp_path / "figure-4"):
        assert path.stat().st_size > 1000


def test_a_missing_panel_leaves_its_place_empty():
    points, y = np.random.default_rng(0).random((6, 2)), np.arange(6)
    panel = Panel(title="here", points=points, y=y, labelled=y < 2, caption="")
    drawn = draw_panels([None, panel, panel], 2, "note")
    assert [axes.get_visible() for axes in drawn.axes] == [False, True, True, False]
