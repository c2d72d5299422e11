"""Units: what the catalogue calls them, as Grafana calls them."""

from __future__ import annotations

from dataclasses import dataclass

from exporters.catalogue import Metric

_KNOWN = {
    "bytes": "bytes",
    "seconds": "s",
    "ratio": "percentunit",
    "boolean": "bool_yes_no",
    "ratio of two values": "suffix:x",
    "requests per second": "reqps",
}
_LEAST = {"percentunit": 0.01, "bytes": 1024, "bool_yes_no": 1}
_COUNTED = "short"  # Grafana's unit of what is counted: the axis says what


@dataclass(frozen=True, slots=True)
class Unit:
    """``grafana``: the unit's id there. ``what``: what is counted or what it is a share of; it stands at the axis.

    ``least``: where an axis ends at the least, so that a line of zeros does not get one that goes up to 10,000 %.
    ``decimals``: where Grafana shows too many.
    """

    grafana: str
    what: str = ""
    least: float | None = None
    decimals: int | None = None

    @property
    def beside_a_number(self) -> str:
        """The id where there is no axis: a number alone has to say what it counts."""
        return f"suffix: {self.what}" if self.grafana == _COUNTED else self.grafana


PLAIN = Unit("none")
TIMES = Unit("suffix:x", least=1, decimals=2)


def of(metric: Metric) -> Unit:
    """Return the unit that a metric's values have."""
    if metric.unit == "points":
        return Unit("none", "of 100", decimals=0)
    known = _KNOWN.get(metric.unit)
    if known is None:
        return Unit(_COUNTED, metric.unit, _least(metric.unit))
    return Unit(known, least=_LEAST.get(known))


def each_second(metric: Metric) -> Unit:
    """Return the unit of a counter's rate."""
    if metric.unit == "bytes":
        return Unit("binBps", least=1024)
    if metric.unit == "seconds":
        return share("of the time")
    return Unit(_COUNTED, f"{metric.unit} a second", 0.1)


def share(of_what: str) -> Unit:
    """Return the unit of a ratio, with what it is a share of."""
    return Unit("percentunit", of_what, _LEAST["percentunit"])


def _least(counted: str) -> float:
    return 0.1 if counted.endswith("per second") else 1.0


SHARE_PER_MINUTE = share("of the pool a minute")
