"""What is simulated, as one value: the engine, its load, what goes wrong in it, and what only looks as if it did.

Times are virtual seconds since the beginning. The same spec gives the same run.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

LEAKS = (
    "orphan",
    "slow_leak",
    "staircase",
    "burst_leak",
    "shared_prefix",
    "spec_residue",
    "double_free",
    "delayed_free",
    "abort_loading",
    "unknown_pin",
)
FLOWS = (
    "preemption_thrash",
    "tenant_surge",
    "eviction_storm",
    "stall",
    "context_shift",
    "long_tail",
)
EVENTS = (
    "long_document",
    "long_sessions",
    "retry_burst",
    "burst",
    "ramp",
    "plateau",
    "mass_abort",
    "bounded_delay",
    "restart",
    "pause",
    "sleep",
    "quiet",
)
CONNECTORS = ("none", "remote", "opaque")
TRACES = ("poisson", "mooncake")

Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=30 * 86400.0)]
Positive = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]


class SpecError(ValueError):
    """A spec that can't be run; the text says what is wrong, in one line."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything that a spec consists of."""


class Fault(Part, frozen=True, kw_only=True):
    """Something that goes wrong from ``onset`` on, for ``seconds`` (0: until the end).

    ``kind``: see docs/simulator.md. ``rate``: of a leak, blocks a minute. ``blocks`` and ``every``: instead, so many at
    a time, every so many seconds (``every`` 0: once). ``tenant``: whose requests it takes (of a surge: who surges);
    empty: anybody's. ``factor``: how much more of a load; 0 takes the kind's own.
    """

    kind: str
    onset: Seconds = 600.0
    seconds: Seconds = 0.0
    rate: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 0.0
    blocks: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 0
    every: Seconds = 0.0
    tenant: str = ""
    factor: Annotated[float, msgspec.Meta(ge=0.0, le=1000.0)] = 0.0


class Event(Part, frozen=True, kw_only=True):
    """Something healthy that may look like a fault. ``seconds``: how long it lasts; ``size``: how much of it there is,
    0 takes the kind's own (tokens of a document, requests of a burst, a factor of the rate).
    """

    kind: str
    at: Seconds = 600.0
    seconds: Seconds = 0.0
    size: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 0.0
    tenant: str = ""


class Engine(Part, frozen=True, kw_only=True):
    """The engine. ``blocks``: usable ones. ``running``: requests that run at most; ``step_tokens``: token budget of one
    step. ``step_seconds``: how long a step lasts; a running request gets ``step_output`` tokens in each, so that a
    step stands for that many of a GPU's. ``drafts``: speculated tokens, at most, of which ``accepted`` are kept.
    ``connector``: none, remote (disaggregated prefill; ``lease_seconds`` is its lease, None: it has none) or opaque
    (one that pins blocks in no book). ``pin_seconds``: after what time such blocks count as leaked. ``priority``:
    requests are served by priority. ``watermark``: share of the pool that is kept free when a waiting request is
    admitted; unset: what vLLM does by itself. ``layers``: with the rest of an 8-billion-parameter model's shape, how
    large a block is.
    """

    name: str = "simulated"
    blocks: Annotated[int, msgspec.Meta(ge=16, le=1_000_000)] = 4000
    block_size: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 16
    running: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64
    step_tokens: Tokens = 4096
    step_seconds: Annotated[float, msgspec.Meta(ge=0.01, le=5.0)] = 0.25
    step_output: Annotated[int, msgspec.Meta(ge=1, le=128)] = 10
    caching: bool = True
    drafts: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    accepted: Share = 0.7
    connector: str = "none"
    lease_seconds: Seconds | None = 120.0
    pin_seconds: Positive = 600.0
    priority: bool = False
    watermark: Share | msgspec.UnsetType = msgspec.UNSET
    layers: Annotated[int, msgspec.Meta(ge=1, le=512)] = 32


class Load(Part, frozen=True, kw_only=True):
    """The load. ``trace``: poisson, mooncake (the shape of a public conversation trace: long prompts that share
    prefixes, arriving in batches), or the path of a file with such a trace.

    ``rate``: requests a second. ``prompt`` and ``output``: median tokens of a Poisson load, with ``spread`` (sigma of
    the logarithm); ``system``: tokens that all prompts of a tenant begin with. ``turns``: mean number of turns of a
    session, 1 for none, ``idle_seconds`` apart on average; a session that was idle for ``context_ttl`` seconds has lost
    its context (0: never). ``tenants``: so many, t1 the largest. ``interrupts``: share of requests whose client goes
    away. ``long_tail``: share of prompts above 4,096 tokens. ``diurnal``: swing of the rate over a day, 0..1;
    ``ramp_seconds``: until the full rate is reached; ``burst``: factor of the rate for 20 s every 5 minutes.
    ``urgent``: share of requests with priority. ``scale``: of a trace's lengths.
    """

    trace: str = "poisson"
    rate: Positive = 1.5
    prompt: Tokens = 500
    output: Tokens = 200
    spread: Annotated[float, msgspec.Meta(ge=0.0, le=3.0)] = 0.6
    system: Annotated[int, msgspec.Meta(ge=0, le=65536)] = 128
    turns: Annotated[float, msgspec.Meta(ge=1.0, le=1000.0)] = 1.0
    idle_seconds: Positive = 30.0
    context_ttl: Seconds = 0.0
    tenants: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    interrupts: Share = 0.02
    long_tail: Share = 0.02
    diurnal: Share = 0.0
    ramp_seconds: Seconds = 0.0
    burst: Annotated[float, msgspec.Meta(ge=1.0, le=1000.0)] = 1.0
    urgent: Share = 0.0
    scale: Annotated[float, msgspec.Meta(gt=0.0, le=100.0)] = 1.0


class Spec(Part, frozen=True, kw_only=True):
    """One run: ``seconds`` of virtual time from Unix time ``start`` on."""

    seed: int = 0
    seconds: Annotated[float, msgspec.Meta(gt=0.0, le=30 * 86400.0)] = 3600.0
    start: Annotated[float, msgspec.Meta(ge=0.0, le=1e11)] = 1_790_000_000.0
    engine: Engine = Engine()
    load: Load = Load()
    faults: Annotated[tuple[Fault, ...], msgspec.Meta(max_length=16)] = ()
    events: Annotated[tuple[Event, ...], msgspec.Meta(max_length=64)] = ()

    def check(self) -> None:
        """Raise :class:`SpecError` where the parts do not fit together."""
        kinds = (*LEAKS, *FLOWS)
        for fault in self.faults:
            if fault.kind not in kinds:
                raise SpecError(f"fault {fault.kind!r} is not known; there are {', '.join(kinds)}")
            if fault.onset >= self.seconds:
                raise SpecError(f"{fault.kind}: onset {fault.onset:g} s is not within the run of {self.seconds:g} s")
            self._check_parts(fault.kind)
            self._check_tenant(fault.kind, fault.tenant)
        for event in self.events:
            if event.kind not in EVENTS:
                raise SpecError(f"event {event.kind!r} is not known; there are {', '.join(EVENTS)}")
            if event.kind == "bounded_delay":
                self._check_parts("delayed_free")
                if self.engine.lease_seconds is None:
                    raise SpecError("bounded_delay: the connector needs a lease")
            self._check_tenant(event.kind, event.tenant)
        if self.engine.connector not in CONNECTORS:
            raise SpecError(f"connector {self.engine.connector!r} is not known; there are {', '.join(CONNECTORS)}")
        if self.load.turns > 1 and self.load.trace != "poisson":
            raise SpecError("turns: a trace has its own sessions")

    def _check_parts(self, kind: str) -> None:
        needed = {"delayed_free": "remote", "abort_loading": "remote", "unknown_pin": "opaque"}.get(kind)
        if needed is not None and self.engine.connector != needed:
            raise SpecError(f"{kind}: needs the connector {needed!r}, not {self.engine.connector!r}")
        if kind == "spec_residue" and not self.engine.drafts:
            raise SpecError("spec_residue: the engine does not speculate (drafts is 0)")
        if kind in ("shared_prefix", "double_free", "eviction_storm") and not self.engine.caching:
            raise SpecError(f"{kind}: needs prefix caching")

        if kind == "tenant_surge" and self.load.tenants < 2:
            raise SpecError("tenant_surge: needs others beside the tenant (tenants is 1)")

    def _check_tenant(self, kind: str, tenant: str) -> None:
        if tenant and tenant not in {f"t{number}" for number in range(1, self.load.tenants + 1)}:
            raise SpecError(f"{kind}: no tenant {tenant!r}; there are t1..t{self.load.tenants}")


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """What really happens, told as it does. ``number`` is the place of the fault (or event) in its list.

    ``what``: began (at ``onset``, with the first block or request of it), ended, or planted (``blocks`` more).
    ``verdict``: what should be said about it, empty for what is healthy. ``scope``: engine or tenant.
    """

    what: str
    number: int
    kind: str
    onset: float
    verdict: str = ""
    scope: str = "engine"
    tenant: str = ""
    blocks: int = 0
    note: str = ""
