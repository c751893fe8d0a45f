import pytest
import torch

from afda.data import load

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits():
    return load("digits")
