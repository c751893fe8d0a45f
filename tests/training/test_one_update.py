"""How much one must read to follow one update of AFDA with its log line."""

import sys
from pathlib import Path

import torch

import afda
from afda.machine.runtime import Runtime
from afda.recipes import recipe
from afda.runs.directory import open_run
from afda.training.run import fit, load_checkpoint
from afda.training.state import begin

ROOT = Path(afda.__file__).parent
MOST_FILES = 12


class Stopped(Exception):
    pass


def trace_one_update(data, folder):
    """Return the files of afda in which functions begin and end, in order, from drawing a batch to the log line."""
    made = recipe("digits-demo", data).with_settings(["steps=100", "net.width=0.1", "align.hidden=8"])
    training, run = begin(made, data, Runtime(torch.device("cpu"))), open_run(folder / "run", made)
    load_checkpoint(training, run)
    visits = []

    def visit(frame, event, _):
        path = frame.f_code.co_filename
        if event in ("call", "return") and path.startswith(str(ROOT)):
            visits.append(str(Path(path).relative_to(ROOT)))

    def on_log(line):
        if line.step == 3:  # one line per update; the fifth would also measure the classifier
            sys.setprofile(visit)
        if line.step == 4:
            sys.setprofile(None)
            raise Stopped

    try:
        fit(training, run, on_log=on_log)
    except Stopped:
        return visits
    finally:
        sys.setprofile(None)


def test_one_update_is_read_in_few_files(digits, tmp_path):
    visits = trace_one_update(digits, tmp_path)
    assert {"training/loop.py", "data/batch.py", "methods/vat.py", "align/adversarial.py"} <= set(visits)
    assert len(set(visits)) <= MOST_FILES, sorted(set(visits))
