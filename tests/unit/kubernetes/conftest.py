"""The chart as it is rendered for each file of values, once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.bed import helm
from tests.bed.helm import Object

VALUES = Path(__file__).parent / "values"
NAMES = ("default", *sorted(path.stem for path in VALUES.glob("*.yaml")))


@cache
def objects_of(name: str) -> list[Object]:
    """The objects for a file of values; ``default``: for none."""
    return helm.rendered(*(() if name == "default" else ("--values", str(VALUES / f"{name}.yaml"))))


@pytest.fixture(scope="session", autouse=True)
def _programs() -> None:
    try:
        for name in ("helm", "kubectl"):
            helm.program(name)
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def objects(name: str) -> list[Object]:
    return objects_of(name)
