import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afda import schedules
from afda.align.adversarial import Adversarial
from afda.schedules import Optimisation

progress = st.floats(0, 1)


@pytest.mark.parametrize(("t", "value"), [(0, 0), (0.1, 0.4621), (0.25, 0.8483), (0.5, 0.9866), (1, 0.9999)])
def test_mu(t, value):
    assert schedules.rise_mu(t) == pytest.approx(value, abs=5e-5)
    assert schedules.rise_mu(t) == pytest.approx(2 / (1 + math.exp(-10 * t)) - 1, abs=1e-12)
    assert Adversarial(weight=3.0).mu(t) == pytest.approx(3 * value, abs=2e-4)


def test_gamma_is_how_fast_mu_rises():
    assert schedules.rise_mu(0.3, gamma=4) == pytest.approx((1 - math.exp(-1.2)) / (1 + math.exp(-1.2)))


def test_ramp_up():
    assert schedules.ramp_up(0, 0.4) == pytest.approx(math.exp(-5))
    assert schedules.ramp_up(0.1, 0.4) == pytest.approx(math.exp(-5 * 0.75**2))
    assert schedules.ramp_up(0.4, 0.4) == schedules.ramp_up(1, 0.4) == 1
    assert schedules.ramp_up(0, 0) == 1


def test_ramp_down():
    assert schedules.ramp_down(0, 0.25) == schedules.ramp_down(0.75, 0.25) == 1
    assert schedules.ramp_down(0.875, 0.25) == pytest.approx(math.exp(-12.5 / 4))
    assert schedules.ramp_down(1, 0.25) == pytest.approx(math.exp(-12.5))
    assert schedules.ramp_down(1, 0) == 1


def test_linear_tail_has_forty_stairs_of_500_steps():
    steps = 60_000
    values = [schedules.linear_tail(step / steps, 20_000 / steps, 40) for step in range(steps)]
    assert values[:40_000] == [1.0] * 40_000
    by_hand = [(40 - stair) / 40 for stair in range(40) for _ in range(500)]
    assert values[40_000:] == pytest.approx(by_hand)
    assert len(set(values)) == 40
    assert values[-1] == pytest.approx(1 / 40)


def test_linear_tail_at_its_ends():
    assert schedules.linear_tail(1, 0.5, 4) == 0.25
    assert schedules.linear_tail(1, 0, 4) == 1


def test_cosine():
    assert schedules.cosine(0, 350 / 300) == 1
    assert schedules.cosine(0.5, 1) == pytest.approx(0.5)
    assert schedules.cosine(1, 350 / 300) == pytest.approx(0.5 * (1 + math.cos(math.pi * 300 / 350)))
    assert schedules.cosine(1, 0.5) == pytest.approx(0)


@pytest.mark.parametrize(
    ("t", "value"), [(0, 1), (0.25, 0.94154), (0.5, 0.77301), (0.75, 0.51410), (8 / 14, 0.70711), (1, 0.19509)]
)
def test_partial_cosine(t, value):
    """FixMatch's: cos(7 pi k / 16 K) at step k of K."""
    assert schedules.partial_cosine(t) == pytest.approx(value, abs=1e-5)
    rates = Optimisation(schedule="partial-cosine", learning_rate=0.03).compute_rates(t)
    assert rates.learning_rate == pytest.approx(0.03 * value, abs=1e-6)
    assert rates.scale == pytest.approx(value, abs=1e-5)
    assert rates.beta1 == 0.9


def test_rates_for_another_largest_learning_rate():
    rates = Optimisation(schedule="cosine", cosine_end=1.0, learning_rate=0.2).compute_rates(0.5)
    assert rates.scale == pytest.approx(0.5)
    assert rates.rescale(None) == rates
    assert rates.rescale(3.0).learning_rate == pytest.approx(1.5)
    assert rates.rescale(3.0).beta1 == rates.beta1


@given(progress, progress, st.floats(0.01, 1))
def test_directions(s, t, length):
    s, t = sorted((s, t))
    assert 0 <= schedules.rise_mu(s) <= schedules.rise_mu(t) <= 1
    assert 0 < schedules.ramp_up(s, length) <= schedules.ramp_up(t, length) <= 1
    for falling in (
        lambda p: schedules.ramp_down(p, length),
        lambda p: schedules.linear_tail(p, length, 40),
        lambda p: schedules.cosine(p, 1.2),
        schedules.partial_cosine,
    ):
        assert 1 >= falling(s) >= falling(t) > 0


def test_beta1_falls_with_the_rate():
    tail = Optimisation(tail=0.25)
    assert [tail.compute_rates(t).beta1 for t in (0, 0.7499, 0.75, 1)] == [0.9, 0.9, 0.5, 0.5]
    smooth = Optimisation(schedule="ramps", ramp_down=0.25)
    assert [smooth.compute_rates(t).beta1 for t in (0, 0.75)] == [0.9, 0.9]
    assert smooth.compute_rates(0.875).beta1 == pytest.approx(0.5 + 0.4 * math.exp(-12.5 / 4))
    assert Optimisation(schedule="cosine").compute_rates(0.9).beta1 == 0.9


def test_rates_multiply_the_learning_rate():
    o = Optimisation(schedule="ramps", learning_rate=2.0, ramp_up=0.4, ramp_down=0.8)
    expected = 2 * math.exp(-5 * (1 - 0.3 / 0.4) ** 2) * math.exp(-12.5 * (0.1 / 0.8) ** 2)
    assert o.compute_rates(0.3).learning_rate == pytest.approx(expected)
