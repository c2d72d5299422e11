"""A play on a small engine, closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.levers.remembering import Play


@pytest.fixture
def play() -> Iterator[Callable[..., Play]]:
    """Make a :class:`Play`; all that were made are closed."""
    made: list[Play] = []

    def make(*args: Any, **kwargs: Any) -> Play:
        made.append(Play(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.close()
