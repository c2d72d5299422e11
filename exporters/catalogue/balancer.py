"""Weights at a load balancer."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

BALANCER_WEIGHT = Metric(
    "kvtide_balancer_weight_ratio",
    "gauge",
    "ratio",
    ENGINE,
    "Part of its usual share of new requests that load balancers are told to give the engine; 0 while it is isolated.",
)
BALANCER_ISOLATED = Metric(
    "kvtide_balancer_isolated", "gauge", "boolean", ENGINE, "1 while the engine gets no new requests."
)
BALANCER_ENFORCING = Metric(
    "kvtide_balancer_enforcing", "gauge", "boolean", (), "1 where weights are told, 0 where they are only worked out."
)
BALANCER_FLEET = Metric(
    "kvtide_balancer_fleet_engines",
    "gauge",
    "engines",
    (),
    "Engines that the coordinator counts, by its last answer; absent while no engine here needs its grant.",
)
BALANCER_EJECTED = Metric(
    "kvtide_balancer_fleet_ejected_engines",
    "gauge",
    "engines",
    (),
    "Engines of the fleet that the coordinator has let go below 50 %; absent while no engine here needs its grant.",
)
BALANCER_REFUSED = Metric(
    "kvtide_balancer_grants_refused_total",
    "counter",
    "grants",
    (),
    "Ejections that the coordinator did not grant, or could not be asked for; each attempt counts.",
)
BALANCER_FAILED = Metric(
    "kvtide_balancer_coordinator_errors_total", "counter", "errors", (), "Calls of the coordinator that failed."
)
