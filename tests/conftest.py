import signal
import sys

import pytest
import torch

from afda.cli import main
from afda.data import load

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits():
    return load("digits")


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
