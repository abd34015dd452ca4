"""The option `--policy module:name`: the battery over the policies runs over this one, too."""

from __future__ import annotations

import importlib

import pytest

from skewless import policies


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--policy", help="module:name of a policy for the battery, tests/policies/test_battery.py"
    )


def pytest_configure(config: pytest.Config) -> None:
    if given := config.getoption("--policy"):
        module, _, name = given.partition(":")
        policies.register(name, getattr(importlib.import_module(module), name))
