"""The sources of the agent by its settings; each says for itself whether it can read anything here."""

from __future__ import annotations

from typing import Any

from agent.sources.base import Source
from agent.sources.config import SourcesConfig


def sources_of(config: SourcesConfig) -> list[Source[Any]]:
    """Return the sources that ``config`` asks for."""
    found: list[Source[Any]] = []
    return found
