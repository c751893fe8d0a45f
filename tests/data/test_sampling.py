import numpy as np
import pytest

from afda.data.sampling import draw, shuffled


@pytest.mark.parametrize(("n", "size"), [(10, 3), (10, 10), (10, 25), (7, 1), (1, 4)])
def test_every_position_once_per_epoch(n, size):
    epochs = 6
    stream = np.concatenate([draw(n, size, step, seed=1, stream=2) for step in range(-(-epochs * n // size))])
    for epoch in range(epochs):
        assert sorted(stream[epoch * n : (epoch + 1) * n]) == list(range(n))


def test_every_batch_has_its_size():
    assert {len(draw(10, 7, step, seed=0, stream=1)) for step in range(30)} == {7}


def test_a_step_needs_no_other_step():
    forwards = [draw(50, 8, step, seed=3, stream=1).tolist() for step in range(40)]
    shuffled.cache_clear()
    backwards = [draw(50, 8, step, seed=3, stream=1).tolist() for step in reversed(range(40))]
    assert forwards == backwards[::-1]


def test_the_order_changes_with_epoch_seed_and_stream():
    orders = [
        draw(100, 100, step, seed=seed, stream=stream).tolist()
        for step, seed, stream in [(0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2)]
    ]
    assert len({tuple(order) for order in orders}) == 4


def test_the_global_random_state_is_neither_used_nor_moved():
    np.random.seed(0)
    expected = np.random.random()
    np.random.seed(0)
    shuffled.cache_clear()
    draw(10, 5, 0, seed=0, stream=1)
    assert np.random.random() == expected
