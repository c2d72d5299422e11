"""Whether an alert fired: asked of a real Prometheus or Alertmanager, until it did or the time is over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import httpx2

from kvtide_chaos import quantities

POLL_SECONDS = 1.0
TIMEOUT_SECONDS = 10.0


class AlertError(AssertionError):
    """An alert that should have fired did not, or one fired that should not have."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A firing alert: its labels, its annotations, and how long we waited for it in seconds."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    after_seconds: float

    @property
    def name(self) -> str:
        """The alert's name."""
        return self.labels.get("alertname", "")


class AlertWatch:
    """Asks one Prometheus (``/api/v1/alerts``) or one Alertmanager (``/api/v2/alerts``) what fires."""

    def __init__(self, *, prometheus: str | None = None, alertmanager: str | None = None) -> None:
        if (prometheus is None) == (alertmanager is None):
            raise ValueError("name one: the address of a Prometheus or of an Alertmanager")
        self.of_prometheus = prometheus is not None
        self.url = str(prometheus or alertmanager).rstrip("/")

    def firing(self) -> list[tuple[Mapping[str, str], Mapping[str, str]]]:
        """Return labels and annotations of each alert that fires and is not silenced; raises ``httpx2.HTTPError``."""
        if self.of_prometheus:
            answer = httpx2.get(f"{self.url}/api/v1/alerts", timeout=TIMEOUT_SECONDS).raise_for_status()
            alerts = answer.json()["data"]["alerts"]
            return [(one["labels"], one["annotations"]) for one in alerts if one["state"] == "firing"]
        answer = httpx2.get(
            f"{self.url}/api/v2/alerts", params={"silenced": "false", "inhibited": "false"}, timeout=TIMEOUT_SECONDS
        ).raise_for_status()
        return [(one["labels"], one["annotations"]) for one in answer.json()]

    def expect(self, name: str, *, within: str | float = "5m", labels: Mapping[str, str] | None = None) -> Alert:
        """Wait for the alert ``name`` with all of ``labels``; raise ``AlertError`` with what fired instead."""
        limit = quantities.seconds(within)
        began = time.monotonic()
        seen: set[str] = set()
        trouble: httpx2.HTTPError | None = None
        while True:
            elapsed = time.monotonic() - began
            try:
                found = self.firing()
                trouble = None
            except httpx2.HTTPError as error:  # A server that restarts is asked again.
                found, trouble = [], error
            for its_labels, its_annotations in found:
                if _fits(its_labels, name, labels):
                    return Alert(its_labels, its_annotations, elapsed)
                seen.add(its_labels.get("alertname", ""))
            if elapsed >= limit:
                break
            time.sleep(min(POLL_SECONDS, limit - elapsed))
        if trouble is not None:
            raise AlertError(f"{name} is not known to have fired: {self.url} did not answer ({trouble})")
        wanted = name + (f" with {dict(labels)}" if labels else "")
        instead = f"what fired: {', '.join(sorted(seen))}" if seen else "nothing fired"
        raise AlertError(f"{wanted} did not fire within {limit:g} s; {instead}")

    def expect_quiet(self, name: str, *, lasting: str | float, labels: Mapping[str, str] | None = None) -> None:
        """Watch for ``lasting``; raise ``AlertError`` if the alert ``name`` fires or nobody could be asked."""
        limit = quantities.seconds(lasting)
        began = time.monotonic()
        while True:
            elapsed = time.monotonic() - began
            try:
                found = self.firing()
            except httpx2.HTTPError as error:
                raise AlertError(f"{name} is not known to be quiet: {self.url} did not answer ({error})") from error
            for its_labels, _ in found:
                if _fits(its_labels, name, labels):
                    raise AlertError(f"{name} fired after {elapsed:.0f} s: {dict(its_labels)}")
            if elapsed >= limit:
                return
            time.sleep(min(POLL_SECONDS, limit - elapsed))


def _fits(labels: Mapping[str, str], name: str, wanted: Mapping[str, str] | None) -> bool:
    return labels.get("alertname") == name and all(labels.get(key) == value for key, value in (wanted or {}).items())
