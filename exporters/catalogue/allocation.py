"""How requests get their blocks: how long it takes, and what is refused."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

ALLOCATION_SECONDS = Metric(
    "kvtide_block_allocation_seconds",
    "histogram",
    "seconds",
    ENGINE,
    "One call that takes blocks out of the free queue, of those made in one step of seventeen.",
    bounds=(1e-5, 1e-4, 1e-3, 1e-2),
)
ADMISSION_WAIT = Metric(
    "kvtide_admission_wait_seconds",
    "histogram",
    "seconds",
    ENGINE,
    "From a request's first attempt that memory refused to its success.",
    bounds=(0.05, 0.1, 0.5, 1.0, 5.0, 30.0),
)
BLOCKS_TAKEN = Metric(
    "kvtide_blocks_taken_total",
    "counter",
    "blocks",
    ENGINE,
    "Blocks taken out of the free queue, prefix hits included.",
)
BLOCKS_GIVEN_BACK = Metric(
    "kvtide_blocks_given_back_total", "counter", "blocks", ENGINE, "Blocks given back to the free queue.", detail=True
)
REFUSED = Metric(
    "kvtide_allocation_refused_total",
    "counter",
    "attempts",
    ENGINE,
    "Attempts to admit a request that memory refused. One a step while a request waits: vLLM asks again each time.",
)
REFUSALS_CONSECUTIVE = Metric(
    "kvtide_allocation_refusals_consecutive",
    "gauge",
    "attempts",
    ENGINE,
    "Refused attempts since memory was last granted to a waiting request. Those of one request count once until "
    "another has let its blocks go: a full pool that serves shows few.",
    detail=True,
)
REFUSALS_CONSECUTIVE_MAX = Metric(
    "kvtide_allocation_refusals_consecutive_max",
    "gauge",
    "attempts",
    ENGINE,
    "Most refused attempts in a row since the engine came up, counted in the same way.",
    detail=True,
)
RETRIES_MAX = Metric(
    "kvtide_allocation_retries_max",
    "gauge",
    "attempts",
    ENGINE,
    "Refused attempts of the waiting request that has the most, counted in the same way.",
    detail=True,
)
RETRIED_REQUESTS = Metric(
    "kvtide_allocation_retried_requests_total",
    "counter",
    "requests",
    ENGINE,
    "Requests that memory refused more than three times, counted in the same way: blocks came back each time, "
    "and too few.",
    detail=True,
)
REQUESTS_PREEMPTED = Metric(
    "kvtide_requests_preempted_total",
    "counter",
    "preemptions",
    ENGINE,
    "Times that a running request was put back because memory ran out. Absent where this vLLM does not show it.",
)
WAITING_REFUSED = Metric(
    "kvtide_requests_waiting_refused",
    "gauge",
    "requests",
    ENGINE,
    "Requests that wait now and that memory has refused.",
)
WAITING_REFUSED_OLDEST = Metric(
    "kvtide_requests_waiting_refused_oldest_seconds",
    "gauge",
    "seconds",
    ENGINE,
    "How long ago the first of those was refused first; absent when there is none.",
)
