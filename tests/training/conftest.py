from dataclasses import replace

import pytest
import torch


@pytest.fixture(scope="session")
def some_digits(digits):
    """Fewer of the digits: what takes time is measuring their features."""
    return replace(digits, train=digits.train[torch.arange(250)], test=digits.test[torch.arange(100)])
