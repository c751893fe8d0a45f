"""Whatever a file holds, its reader returns or says what is wrong in one sentence. `make fuzz` tries for longer."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import damaged
from targets import TARGETS
from trying import try_one

QUICK, LONG = 15, int(os.environ.get("AFDA_INPUTS", "2000"))
EVERY = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False)


@pytest.mark.parametrize("name", TARGETS)
def test_good_files_are_read(name):
    """But for what is there to be refused: arrays of objects, PostScript, a pickle that runs a program."""
    outcomes = [try_one(name, seed) for seed in TARGETS[name].seeds()]
    assert "read" in outcomes


def tried(name, examples, **how):
    @settings(EVERY, max_examples=examples, **how)
    @given(st.data())
    def every(data):
        try_one(name, data.draw(damaged(TARGETS[name].seeds())))

    every()


@pytest.mark.parametrize("name", TARGETS)
def test_bad_files_are_refused(name):
    tried(name, QUICK, derandomize=True)


@pytest.mark.soak
@pytest.mark.parametrize("name", TARGETS)
def test_many_bad_files_are_refused(name):
    tried(name, LONG)
