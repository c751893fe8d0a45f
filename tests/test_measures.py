import itertools
import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from afda import measures
from afda.measures import mmd2, risk_bound


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def squared_distance(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def lower_median(values):
    return sorted(values)[(len(values) - 1) // 2]


def median_by_hand(p, q):
    return lower_median([squared_distance(a, b) for a, b in itertools.combinations([*p, *q], 2) if a != b])


def mmd2_by_hand(p, q, bandwidth):
    def kernel(a, b):
        return math.exp(-squared_distance(a, b) / bandwidth)

    def within(rows):
        pairs = [kernel(a, b) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j]
        return sum(pairs) / len(pairs)

    return within(p) + within(q) - 2 * sum(kernel(a, b) for a in p for b in q) / (len(p) * len(q))


def test_error_rate():
    assert measures.error_rate(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 1, 2])) == 25.0


def test_confusion_and_class_errors():
    matrix = measures.confusion_matrix(torch.tensor([0, 1, 1, 2, 0]), torch.tensor([0, 1, 0, 0, 0]), 4)
    assert matrix.tolist() == [[2, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert measures.class_errors(matrix) == [50.0, 0.0, None, None]


def test_bandwidth_is_the_median_squared_distance_of_the_pooled_pairs():
    p, q = normal(6, 3), 1 + normal(5, 3, seed=1)
    by_hand = median_by_hand(p.tolist(), q.tolist())
    assert float(measures.median_bandwidth(p, q)) == pytest.approx(by_hand, rel=1e-12)


def test_literal_bandwidth_is_the_median_plain_distance():
    p, q = normal(6, 3), 1 + normal(5, 3, seed=1)
    rows = [*p.tolist(), *q.tolist()]
    by_hand = lower_median([math.dist(a, b) for a, b in itertools.combinations(rows, 2)])
    assert float(measures.median_bandwidth(p, q, of="distance")) == pytest.approx(by_hand, rel=1e-12)


def test_the_bandwidth_leaves_out_equal_points():
    p, q = torch.zeros(9, 2), torch.tensor([[3.0, 4.0]])
    assert float(measures.median_bandwidth(p, q)) == pytest.approx(25)
    assert float(measures.median_bandwidth(p, p)) == 1
    assert float(mmd2(p, p)) == 0


def test_the_bandwidth_of_a_seeded_subsample():
    p, q = normal(40, 3), normal(60, 3, seed=1)
    chosen = torch.randperm(100, generator=torch.Generator().manual_seed(3))[:20]
    by_hand = median_by_hand(torch.cat([p, q])[chosen].tolist(), [])
    assert float(measures.median_bandwidth(p, q, most=20, seed=3)) == pytest.approx(by_hand, rel=1e-12)
    assert measures.median_bandwidth(p, q, most=20, seed=4) != measures.median_bandwidth(p, q, most=20, seed=3)
    assert measures.median_bandwidth(p, q, most=100, seed=4) == measures.median_bandwidth(p, q, most=100, seed=3)


@pytest.mark.parametrize("bandwidth", [None, 0.7, 30.0])
def test_mmd2_against_double_loops(bandwidth):
    p, q = normal(7, 3), 0.5 + normal(9, 3, seed=1)
    gamma = bandwidth or median_by_hand(p.tolist(), q.tolist())
    by_hand = mmd2_by_hand(p.tolist(), q.tolist(), gamma)
    assert float(mmd2(p, q, bandwidth)) == pytest.approx(by_hand, rel=1e-10)
    assert float(mmd2(p.float(), q.float(), bandwidth)) == pytest.approx(by_hand, abs=1e-6)


def test_mmd2_does_not_depend_on_the_chunks(monkeypatch):
    p, q = normal(11, 3).requires_grad_(), normal(23, 3, seed=1)
    whole = mmd2(p, q)
    monkeypatch.setattr(measures, "CHUNK", 4)
    chunked = mmd2(p, q)
    assert chunked.item() == pytest.approx(whole.item(), rel=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(value, p)[0] for value in (chunked, whole)))


def test_mmd2_of_arrays():
    p, q = torch.rand(20, 4), torch.rand(30, 4)
    assert mmd2(p.numpy(), q.numpy()) == mmd2(p, q)
    assert mmd2(p.double().numpy(), q) == mmd2(p.double(), q.double())


def test_mmd2_is_unbiased():
    random = torch.Generator().manual_seed(0)
    draws = torch.randn(1500, 5 + 8, 2, dtype=torch.float64, generator=random)
    values = torch.stack([mmd2(draw[:5], draw[5:], 2.0) for draw in draws])
    error = float(values.std()) / len(values) ** 0.5
    assert abs(float(values.mean())) < 3 * error
    assert float(values.min()) < 0
    # With the diagonal it would be off by far more than that.
    assert error < 0.1 * (1 / 5 + 1 / 8) * 0.5


@pytest.mark.parametrize("n", [20, 50, 100])
def test_mmd2_of_a_set_with_equally_many_per_class_comes_out_below_zero(n):
    """Features that are the classes themselves, and a bandwidth that makes different ones as good as unlike."""
    classes = 10
    features = torch.eye(classes, dtype=torch.float64).repeat_interleave(200, dim=0)
    balanced = torch.eye(classes, dtype=torch.float64).repeat_interleave(n // classes, dim=0)
    found = float(mmd2(balanced, features, bandwidth=0.02))
    # The large set is balanced too, which costs it next to nothing.
    assert found == pytest.approx(-(classes - 1) / (classes * (n - 1)), abs=6e-4)


def test_mmd2_sees_a_difference_and_neither_shift_nor_scale():
    p, q = normal(60, 4), normal(80, 4, seed=1)
    apart = float(mmd2(p, q + 2))
    assert apart > 0.3
    assert abs(float(mmd2(p, q))) < 0.03
    assert float(mmd2(100 * p + 7, 100 * (q + 2) + 7)) == pytest.approx(apart, rel=1e-9)


def test_mmd2_of_float32_features_far_from_the_origin():
    p, q = normal(60, 4), 1 + normal(80, 4, seed=1)
    far = float(mmd2((p + 1000).float(), (q + 1000).float()))
    assert far == pytest.approx(float(mmd2(p, q)), abs=1e-5)


def test_mmd2_of_a_single_image_is_not_a_number():
    assert mmd2(normal(1, 3), normal(5, 3)).isnan()
    assert mmd2(normal(5, 3), normal(1, 3)).isnan()


def test_mmd2_gradients():
    p, q = normal(4, 3).requires_grad_(), normal(5, 3, seed=1).requires_grad_()
    assert gradcheck(lambda p, q: mmd2(p, q, 2.0), (p, q))


MEMORY = """
import resource, torch
from afda.measures import mmd2
random = torch.Generator().manual_seed(0)
p, q = torch.randn(250, 128, generator=random), torch.randn(73_007, 128, generator=random)
float(mmd2(p, q[:300]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
value = float(mmd2(p, q))
print(value, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
"""


@pytest.mark.slow
def test_mmd2_of_all_of_svhn_is_exact_in_little_memory():
    printed = subprocess.run([sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True).stdout
    value, gigabytes = map(float, printed.split())
    assert gigabytes < 1
    assert abs(value) < 1e-3
    p, q = normal(250, 128, dtype=torch.float32), 0.2 + normal(6000, 128, seed=1, dtype=torch.float32)

    def kernel(a, b):
        return (-torch.cdist(a.double(), b.double(), compute_mode="donot_use_mm_for_euclid_dist").square() / 256).exp()

    reference = (
        (kernel(p, p).sum() - 250) / (250 * 249) + (kernel(q, q).sum() - 6000) / (6000 * 5999) - 2 * kernel(p, q).mean()
    )
    assert float(mmd2(p, q, 256.0)) == pytest.approx(float(reference), abs=1e-7)


def risk_by_hand(features, y, W, b):
    total = 0.0
    for f, k in zip(features, y, strict=True):
        z = [sum(w * v for w, v in zip(row, f, strict=True)) + bias for row, bias in zip(W, b, strict=True)]
        total += math.log(sum(math.exp(v) for v in z)) - z[k]
    return total / len(y)


def terms_by_hand(f_l, y_l, f_u, y_u, W, b):
    """One feature term and one label term, image by image."""
    features = labels = 0.0
    for k, row in enumerate(W):
        for j, w in enumerate(row):
            of_l = sum(f[j] for f, y in zip(f_l, y_l, strict=True) if y == k) / len(f_l)
            of_u = sum(f[j] for f, y in zip(f_u, y_u, strict=True) if y == k) / len(f_u)
            features += abs(w) * abs(of_l - of_u)
        labels += abs(b[k]) * abs(y_l.count(k) / len(y_l) - y_u.count(k) / len(y_u))
    return features, labels


def scores_by_hand(f, W, b):
    return [sum(w * v for w, v in zip(row, f, strict=True)) + bias for row, bias in zip(W, b, strict=True)]


def problem(seed, n, m, size, classes, scale=1.0):
    random = torch.Generator().manual_seed(seed)
    tensors = (torch.randn(*s, dtype=torch.float64, generator=random) for s in ((n, size), (m, size), (classes, size)))
    f_l, f_u, W = (scale * tensor for tensor in tensors)
    b = scale * torch.randn(classes, dtype=torch.float64, generator=random)
    y_l, y_u = (torch.randint(classes, (k,), generator=random) for k in (n, m))
    return f_l, y_l, f_u, y_u, W, b


def test_the_four_terms_against_loops():
    tensors = problem(0, 7, 11, 3, 4)
    f_l, y_l, f_u, y_u, W, b = (t.tolist() for t in tensors)
    bound = risk_bound(*tensors)
    assert bound[:2] == pytest.approx(terms_by_hand(f_l, y_l, f_u, y_u, W, b))

    z_l, z_u = ([scores_by_hand(f, W, b) for f in features] for features in (f_l, f_u))
    h_l, h_u = ([z.index(max(z)) for z in scores] for scores in (z_l, z_u))
    assert bound[2:4] == pytest.approx(terms_by_hand(f_l, h_l, f_u, h_u, W, b))
    assert bound.total == pytest.approx(sum(bound[:4]))

    def slack(scores):
        return sum(math.log(sum(math.exp(v) for v in z)) - max(z) for z in scores) / len(scores)

    assert bound.remainder == pytest.approx(abs(slack(z_u) - slack(z_l)))
    assert bound.gap == pytest.approx(abs(risk_by_hand(f_u, y_u, W, b) - risk_by_hand(f_l, y_l, W, b)))
    assert bound.as_dict() == {**bound._asdict(), "total": bound.total}


@given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 8),
    m=st.integers(1, 12),
    size=st.integers(1, 5),
    classes=st.integers(2, 6),
    scale=st.floats(0.01, 30),
)
@settings(max_examples=300, deadline=None)
def test_the_bound_holds(seed, n, m, size, classes, scale):
    bound = risk_bound(*problem(seed, n, m, size, classes, scale))
    assert bound.gap <= bound.total + bound.remainder + 1e-9 * max(1, bound.total)
    assert bound.remainder <= math.log(classes) + 1e-9


def test_equal_sets_have_no_gap_and_no_bound():
    f, y, _, _, W, b = problem(1, 6, 6, 3, 4)
    assert risk_bound(f, y, f, y, W, b) == pytest.approx((0,) * 6)
