import numpy as np
import pytest
import torch

from afda.data.images import Preparation
from afda.data.normalise import compute_channel_moments, fit_normaliser


def pictures(n=300, seed=0, shape=(3, 4, 4)):
    return torch.randint(0, 256, (n, *shape), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def test_centre_maps_bytes_to_half_and_minus_half():
    x = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    made = fit_normaliser(Preparation(normalise="centre"), x)(x)
    assert made.dtype == torch.float32
    np.testing.assert_allclose(made.flatten(), (np.arange(256) - 127.5) / 255, atol=1e-7)
    assert float(made.min()) == pytest.approx(-0.5)
    assert float(made.max()) == pytest.approx(0.5)


def test_standard_has_zero_mean_and_unit_variance_per_channel():
    x = pictures()
    x[:, 1] //= 3
    normaliser = fit_normaliser(Preparation(normalise="standard"), x)
    made = normaliser(x).double()
    np.testing.assert_allclose(made.mean(dim=(0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(made.var(dim=(0, 2, 3), correction=0), 1, atol=1e-5)
    by_hand = x.numpy().astype(np.float64)
    by_hand -= by_hand.mean(axis=(0, 2, 3), keepdims=True)
    by_hand /= by_hand.std(axis=(0, 2, 3), keepdims=True)
    np.testing.assert_allclose(made, by_hand, atol=1e-5)


def test_a_flat_channel_stays_finite():
    x = pictures()
    x[:, 2] = 77
    made = fit_normaliser(Preparation(normalise="standard"), x)(x)
    assert made.isfinite().all()
    assert not made[:, 2].any()


def test_moments_over_several_parts_are_exact():
    x = pictures(9000, shape=(2, 2, 2))
    mean, std = compute_channel_moments(x)
    values = x.numpy().transpose(1, 0, 2, 3).reshape(2, -1).astype(np.float64)
    np.testing.assert_allclose(mean, values.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(std, values.std(axis=1), rtol=1e-12)


def test_moments_of_more_pixels_than_float32_can_count():
    x = torch.zeros(1, 1, 64, 64, dtype=torch.uint8).repeat(4100, 1, 1, 1)
    x[-1, 0, 0, 0] = 200
    mean, _ = compute_channel_moments(x)
    assert mean.item() == pytest.approx(200 / (4100 * 4096), rel=1e-12, abs=0)


def test_zca_by_hand():
    x = pictures()
    flat = x.numpy().reshape(300, -1).astype(np.float64) / 255
    centred = flat - flat.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / 300)
    by_hand = centred @ (vectors @ np.diag(1 / np.sqrt(values + 1e-5)) @ vectors.T)
    made = fit_normaliser(Preparation(normalise="zca"), x)(x)
    assert made.shape == x.shape
    np.testing.assert_allclose(made.flatten(1), by_hand, atol=2e-4)


def test_zca_whitens():
    x = pictures()
    made = fit_normaliser(Preparation(normalise="zca"), x)(x).flatten(1).double()
    np.testing.assert_allclose(made.T @ made / 300, np.eye(48), atol=2e-3)
    np.testing.assert_allclose(made.mean(dim=0), 0, atol=1e-5)


def test_zca_is_the_rotation_back_to_pixels():
    matrix = fit_normaliser(Preparation(normalise="zca"), pictures()).matrix
    torch.testing.assert_close(matrix, matrix.T)
    assert float(torch.linalg.eigvalsh(matrix).min()) > 0


def test_zca_of_smooth_images_keeps_its_digits():
    """Neighbouring pixels nearly equal, as in photographs: most of the covariance's eigenvalues are tiny."""
    random = np.random.default_rng(0)
    coarse = random.normal(size=(5000, 3, 3, 3))
    fine = np.kron(coarse, np.ones((1, 1, 4, 4))) * 40 + 128 + random.normal(size=(5000, 3, 12, 12))
    x = torch.from_numpy(fine.round().clip(0, 255).astype(np.uint8))
    flat = x.numpy().reshape(5000, -1).astype(np.float64) / 255
    centred = flat - flat.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / 5000)
    by_hand = centred @ (vectors @ np.diag(1 / np.sqrt(values + 1e-5)) @ vectors.T)
    made = fit_normaliser(Preparation(normalise="zca"), x)(x).flatten(1).numpy()
    assert np.abs(made - by_hand).max() < 0.01 * by_hand.std()


@pytest.mark.parametrize("normalise", ["centre", "standard", "zca"])
def test_fitted_once_and_applied_to_anything(normalise):
    x, other = pictures(), pictures(50, seed=1) // 2
    normaliser = fit_normaliser(Preparation(normalise=normalise), x)
    state = {k: v.clone() for k, v in normaliser.state_dict().items()}
    whole = normaliser(torch.cat([x, other]))
    torch.testing.assert_close(whole[300:], normaliser(other), rtol=1e-4, atol=1e-4)
    assert all(torch.equal(v, state[k]) for k, v in normaliser.state_dict().items())
    # Fitted on others it would be another, unless it is fixed.
    refitted = fit_normaliser(Preparation(normalise=normalise), other)(other)
    assert torch.equal(refitted, normaliser(other)) == (normalise == "centre")
    assert whole.is_contiguous(memory_format=torch.channels_last)


def test_vectors_are_standardised_per_feature():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 50.0, 0.0]) + 7
    for normalise in ("centre", "standard", "zca"):
        made = fit_normaliser(Preparation(normalise=normalise), x)(x).double()
        np.testing.assert_allclose(made.mean(dim=0), 0, atol=1e-5)
        np.testing.assert_allclose(made.std(dim=0, correction=0), [1, 1, 0], atol=1e-5)


def test_vectors_are_clipped_if_asked_to():
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    x[0] = torch.tensor([100.0, -100.0, 0.0])
    plain, clipped = (fit_normaliser(Preparation(clip=clip), x) for clip in (None, 4.0))
    assert plain(x).abs().max() > 20
    assert torch.equal(clipped(x), plain(x).clamp(-4, 4))
    assert plain.state_dict().keys() == clipped.state_dict().keys() == {"mean", "scale"}
    images = torch.randint(0, 256, (5, 1, 4, 4), dtype=torch.uint8)
    assert fit_normaliser(Preparation(normalise="standard", clip=0.1), images).clip is None
