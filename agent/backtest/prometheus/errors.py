"""What is wrong with a Prometheus or its answer."""

from __future__ import annotations

from agent.errors import KvtideError


class PrometheusError(KvtideError):
    """No history came; the text is one line that says why."""


class TooLargeError(PrometheusError):
    """An answer is larger than any may be: a shorter range may do."""
