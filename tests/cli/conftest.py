import numpy as np
import pytest
from command import FAST, run_command


@pytest.fixture(scope="module")
def few(tmp_path_factory, digits):
    """A light data set: 200 digits and a test set."""
    path = tmp_path_factory.mktemp("data") / "few.npz"
    x, y = digits.train.x[:200, 0].numpy(), digits.train.y[:200].numpy()
    np.savez(path, x=x, y=y, x_test=digits.test.x[:50, 0].numpy(), y_test=digits.test.y[:50].numpy())
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory, few):
    """A finished run, what the command printed, and its arguments."""
    out = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["train", few, "--steps", 20, "--seed", 1, "--out", out, *FAST, "--baseline"]
    return out, run_command(*arguments, "--json"), arguments
