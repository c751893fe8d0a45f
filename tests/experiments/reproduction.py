"""Small sweeps on the digits, and the command in a process."""

import subprocess
import sys

from afda.experiments.reproduce import make_jobs, plan_runs

QUICK = ["steps=20", "net.width=0.25", "labelled_batch=10", "unlabelled_batch=10"]


def run_afda(*arguments, **options):
    """Run the command in a process."""
    command = [sys.executable, "-m", "afda", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)


def set_options(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def plan_jobs(name, chosen, folder, seeds, settings=()):
    """Return the jobs of a table's cells."""
    return make_jobs(plan_runs(name, chosen, "cpu", seeds, settings), folder)
