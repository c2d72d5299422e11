"""A play whose blocks can be moved, closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.compaction.moving import Moving


@pytest.fixture
def moving() -> Iterator[Callable[..., Moving]]:
    """Make a :class:`Moving`; all that were made are closed."""
    made: list[Moving] = []

    def make(*args: Any, **kwargs: Any) -> Moving:
        made.append(Moving(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.close()
