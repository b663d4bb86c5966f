"""Show each failure at once: the time on a GPU may end before the tests do."""

import os
import sys

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    is_worker = "PYTEST_XDIST_WORKER" in os.environ  # whose reports reach the main process too
    if report.failed and not is_worker:
        print(f"\n{report.nodeid} ({report.when})\n{report.longreprtext}", file=sys.stderr)
