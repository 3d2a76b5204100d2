"""Options of the test run."""

from __future__ import annotations

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
