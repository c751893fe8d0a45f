import signal
import sys

import numpy as np
import pytest
import torch

from afda.cli import main
from afda.data import load

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits():
    return load("digits")


@pytest.fixture(scope="session")
def few(digits, tmp_path_factory):
    """Somebody's own arrays: a few of the digits."""
    path = tmp_path_factory.mktemp("few") / "few.npz"
    x, y = digits.train.x[:, 0].numpy(), digits.train.y.numpy()
    np.savez(path, x=x[:200], y=y[:200], x_test=x[200:260], y_test=y[200:260])
    return path


@pytest.fixture
def afda(monkeypatch, capsys):
    """The command in this process: its exit code, standard output and standard error."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["afda", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as exit:
            code = exit.code or 0
        return code, *capsys.readouterr()

    yield run
    for number, handler in kept.items():
        signal.signal(number, handler)
