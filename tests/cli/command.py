"""Running the command in a process, and reading its errors."""

import subprocess
import sys

SMALL = ["net=mlp", "net.hidden=16", "net.features=8", "align.hidden=8"]
LIGHT = ["labels=20", "labelled_batch=4", "unlabelled_batch=8", *SMALL]
QUICK = [part for setting in LIGHT for part in ("--set", setting)] + ["--threads", "1"]
FAST = [*QUICK, "--method", "vat+entropy", "--no-baseline"]
"""One training, without a comparison before it."""


def run_command(*arguments, **choices):
    """Run the command in a process."""
    command = [sys.executable, "-m", "afda", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **choices)


def read_error(code, out, err):
    """Return the one sentence about a user's mistake."""
    assert code == 2, err
    assert out == ""
    assert err.startswith("Error: ")
    assert err.endswith((".\n", "?\n"))
    assert err.count("\n") == 1
    return err
