import pytest
from reproduction import QUICK, plan_jobs

from afda.experiments.cells import select_cells
from afda.experiments.sweep import sweep


@pytest.fixture(scope="session")
def two_sweeps(tmp_path_factory):
    """The cells of one row of a table on the digits, trained twice: backwards one at a time, and two at a time."""
    chosen = select_cells("table-5", "method=supervised", labels=20, on_digits=True)
    folders = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for folder, at_once in zip(folders, (1, 2), strict=True):
        jobs = plan_jobs("table-5", chosen, folder, 2, QUICK)
        for _ in sweep(jobs[::-1] if at_once == 1 else jobs, at_once):
            pass
        assert [job.state for job in jobs] == ["done"] * 4
    return chosen, folders
