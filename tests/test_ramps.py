import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afda import ramps
from afda.align.adversarial import Adversarial
from afda.recipe import Optimisation

progress = st.floats(0, 1)


@pytest.mark.parametrize(("t", "value"), [(0, 0), (0.1, 0.4621), (0.25, 0.8483), (0.5, 0.9866), (1, 0.9999)])
def test_mu(t, value):
    assert ramps.mu(t) == pytest.approx(value, abs=5e-5)
    assert ramps.mu(t) == pytest.approx(2 / (1 + math.exp(-10 * t)) - 1, abs=1e-12)
    assert Adversarial(weight=3.0).mu(t) == pytest.approx(3 * value, abs=2e-4)


def test_gamma_is_how_fast_mu_rises():
    assert ramps.mu(0.3, gamma=4) == pytest.approx((1 - math.exp(-1.2)) / (1 + math.exp(-1.2)))


def test_ramp_up():
    assert ramps.ramp_up(0, 0.4) == pytest.approx(math.exp(-5))
    assert ramps.ramp_up(0.1, 0.4) == pytest.approx(math.exp(-5 * 0.75**2))
    assert ramps.ramp_up(0.4, 0.4) == ramps.ramp_up(1, 0.4) == 1
    assert ramps.ramp_up(0, 0) == 1


def test_ramp_down():
    assert ramps.ramp_down(0, 0.25) == ramps.ramp_down(0.75, 0.25) == 1
    assert ramps.ramp_down(0.875, 0.25) == pytest.approx(math.exp(-12.5 / 4))
    assert ramps.ramp_down(1, 0.25) == pytest.approx(math.exp(-12.5))
    assert ramps.ramp_down(1, 0) == 1


def test_linear_tail_has_forty_stairs_of_500_steps():
    steps = 60_000
    values = [ramps.linear_tail(step / steps, 20_000 / steps, 40) for step in range(steps)]
    assert values[:40_000] == [1.0] * 40_000
    by_hand = [(40 - stair) / 40 for stair in range(40) for _ in range(500)]
    assert values[40_000:] == pytest.approx(by_hand)
    assert len(set(values)) == 40
    assert values[-1] == pytest.approx(1 / 40)


def test_linear_tail_at_its_ends():
    assert ramps.linear_tail(1, 0.5, 4) == 0.25
    assert ramps.linear_tail(1, 0, 4) == 1


def test_cosine():
    assert ramps.cosine(0, 350 / 300) == 1
    assert ramps.cosine(0.5, 1) == pytest.approx(0.5)
    assert ramps.cosine(1, 350 / 300) == pytest.approx(0.5 * (1 + math.cos(math.pi * 300 / 350)))
    assert ramps.cosine(1, 0.5) == pytest.approx(0)


@given(progress, progress, st.floats(0.01, 1))
def test_directions(s, t, length):
    s, t = sorted((s, t))
    assert 0 <= ramps.mu(s) <= ramps.mu(t) <= 1
    assert 0 < ramps.ramp_up(s, length) <= ramps.ramp_up(t, length) <= 1
    for falling in (
        lambda p: ramps.ramp_down(p, length),
        lambda p: ramps.linear_tail(p, length, 40),
        lambda p: ramps.cosine(p, 1.2),
    ):
        assert 1 >= falling(s) >= falling(t) > 0


def test_beta1_falls_with_the_rate():
    tail = Optimisation(tail=0.25)
    assert [tail.rates(t)["beta1"] for t in (0, 0.7499, 0.75, 1)] == [0.9, 0.9, 0.5, 0.5]
    smooth = Optimisation(schedule="ramps", ramp_down=0.25)
    assert [smooth.rates(t)["beta1"] for t in (0, 0.75)] == [0.9, 0.9]
    assert smooth.rates(0.875)["beta1"] == pytest.approx(0.5 + 0.4 * math.exp(-12.5 / 4))
    assert Optimisation(schedule="cosine").rates(0.9)["beta1"] == 0.9


def test_rates_multiply_the_learning_rate():
    o = Optimisation(schedule="ramps", learning_rate=2.0, ramp_up=0.4, ramp_down=0.8)
    expected = 2 * math.exp(-5 * (1 - 0.3 / 0.4) ** 2) * math.exp(-12.5 * (0.1 / 0.8) ** 2)
    assert o.rates(0.3)["learning_rate"] == pytest.approx(expected)
