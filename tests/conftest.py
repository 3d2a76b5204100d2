"""Options of the test run, and what every test may rely on."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ablation suite")
    group.addoption(
        "--update-golden", action="store_true", help="write tests/golden from what the templates render now"
    )
    group.addoption(
        "--all-targets",
        action="store_true",
        help="compile every default case for every default architecture, not for one and a sample",
    )


@pytest.fixture(autouse=True, scope="session")
def interrupts_are_heard() -> Iterator[None]:
    """A shell starts background jobs with SIGINT ignored, and children inherit that: Ctrl-C would be lost."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
