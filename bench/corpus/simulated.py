"""Runs of the real scheduler and block pool with real hooks, in virtual time; kept under build/corpus by their spec."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from agent.bundle.format import read
from agent.simulate.run import Engine, Event, Fault, Load, Simulator, Spec, simulate
from bench.corpus.scenario import Label, Made, Recipe, Scenario

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "corpus"
PYTHON = ROOT / ".venv" / "engine" / "bin" / "python"
SECONDS, SHORT_SECONDS = 1_200.0, 720.0
_OF_LOAD = frozenset({"kv_pressure", "preemption_thrash", "tenant_surge", "eviction_storm", "workload_shift"})
_OF_LEAK = frozenset({"kv_orphan", "kv_stall", "spec_residue", *_OF_LOAD})
# By the fault: how long until a person would know, and what else would be right to say.
_DUE = {"kv_orphan": 20.0, "kv_over_freed": 20.0, "kv_stall": 60.0}
_USUAL_DUE = 600.0


# Ways in which load comes, beside the usual.
_STYLES: dict[str, dict[str, Any]] = {
    "usual": {},
    "sessions": {"turns": 5.0, "idle_seconds": 20.0, "context_ttl": 120.0, "system": 512, "rate": 0.3},
    "tenants": {"tenants": 4, "burst": 3.0, "rate": 0.6},
    "interrupts": {"interrupts": 0.35},
    "trace": {"trace": "mooncake", "scale": 0.08, "turns": 1.0, "rate": 0.8},
    "urgent": {"urgent": 0.3, "tenants": 3},
}


def _load(rng: Random, style: str = "usual", **more: Any) -> Load:
    values: dict[str, Any] = {
        "rate": rng.uniform(0.5, 1.5),
        "prompt": rng.choice((200, 400, 700)),
        "output": rng.choice((100, 200, 300)),
        "spread": rng.uniform(0.4, 0.8),
        "turns": rng.choice((1.0, 1.0, 3.0)),
        "tenants": rng.randint(1, 4),
        "interrupts": rng.uniform(0.0, 0.1),
    }
    return Load(**values | _STYLES[style] | more)


def faulty(kind: str, style: str, rng: Random) -> Spec:
    """Return a run with one fault of ``kind``, under a load of ``style``."""
    short = style != "usual" and kind not in _OF_LOAD
    onset = rng.uniform(120, 240) if short else rng.uniform(300, 500)
    engine, load = Engine(blocks=rng.choice((3_000, 6_000)), priority=style == "urgent"), _load(rng, style)
    more: dict[str, Any] = {}
    if kind == "spec_residue":
        engine = Engine(blocks=6_000, drafts=3)
        more["blocks"], more["every"] = rng.randint(4, 16), rng.uniform(10, 30)
    elif kind in ("delayed_free", "abort_loading"):
        engine = Engine(blocks=6_000, connector="remote", lease_seconds=rng.choice((60.0, 120.0, 240.0)))
    elif kind == "unknown_pin":
        engine = Engine(blocks=6_000, connector="opaque", pin_seconds=rng.choice((300.0, 600.0)))
    elif kind in ("tenant_surge", "eviction_storm"):
        load = _load(rng, style, tenants=3)
    return Spec(
        seed=rng.getrandbits(31),
        seconds=SHORT_SECONDS if short else SECONDS,
        engine=engine,
        load=load,
        faults=(Fault(kind=kind, onset=onset, **more),),
    )


def healthy(kinds: Sequence[str], style: str, rng: Random) -> Spec:
    """Return a run in which only some of ``kinds`` happen, under a load of ``style``."""
    at, events = 200.0, []
    for kind in rng.sample(kinds, min(2 if style != "usual" else 3, len(kinds))):
        long = rng.uniform(60, 240)
        # An engine that is away for longer than weights take to load would be missed, and rightly.
        events.append(Event(kind=kind, at=at, seconds=min(long, 150.0) if kind == "restart" else long))
        at += rng.uniform(260, 330)
    bounded = "bounded_delay" in kinds
    engine = Engine(blocks=6_000, connector="remote", lease_seconds=240.0) if bounded else Engine(blocks=6_000)
    return Spec(
        seed=rng.getrandbits(31),
        seconds=SHORT_SECONDS if style != "usual" else SECONDS,
        engine=engine,
        load=_load(rng, style, rate=rng.uniform(0.3, 0.9) * (0.4 if style == "sessions" else 1.0)),
        events=tuple(events),
    )


def path_of(spec: Spec) -> Path:
    """Return where the bundle of ``spec`` is kept."""
    digest = hashlib.sha256(msgspec.json.encode(spec)).hexdigest()
    return CACHE / f"{digest[:20]}.kvtide"


def _made(spec: Spec) -> Made:
    bundle = read(path_of(spec))
    labels = tuple(
        Label(
            kind=label.kind,
            onset=label.onset,
            ended=label.ended,
            subject=label.subject,
            due_seconds=_DUE.get(label.kind, _USUAL_DUE),
            implied=_OF_LEAK,
        )
        for label in bundle.header.labels
    )
    return Made(bundle.states(), labels)


def _recipe(
    name: str, kind: str, spec: Callable[[Random], Spec], tuning: int, evaluation: int, *, unseen: bool
) -> Recipe:
    recipe = Recipe(
        f"simulated: {name}",
        "simulated",
        kind,
        lambda rng: _made(spec(rng)),
        tuning,
        evaluation,
        unseen=unseen,
        long=True,
    )
    _SPECS[recipe.name] = spec
    return recipe


_SPECS: dict[str, Callable[[Random], Spec]] = {}
_VERDICTS = {
    "orphan": "kv_orphan",
    "slow_leak": "kv_orphan",
    "staircase": "kv_orphan",
    "burst_leak": "kv_orphan",
    "shared_prefix": "kv_orphan",
    "double_free": "kv_over_freed",
    "spec_residue": "spec_residue",
    "delayed_free": "kv_delayed_free",
    "abort_loading": "kv_delayed_free",
    "unknown_pin": "kv_pinned",
    "preemption_thrash": "preemption_thrash",
    "tenant_surge": "tenant_surge",
    "eviction_storm": "eviction_storm",
    "stall": "kv_stall",
}
FAULTS = (
    *((kind, "usual") for kind in _VERDICTS if kind not in ("burst_leak", "abort_loading", "eviction_storm")),
    ("orphan", "interrupts"),
    ("orphan", "trace"),
    ("slow_leak", "sessions"),
    ("staircase", "tenants"),
    ("burst_leak", "urgent"),
    ("shared_prefix", "sessions"),
    ("double_free", "sessions"),
    ("double_free", "trace"),
    ("spec_residue", "interrupts"),
    ("delayed_free", "tenants"),
    ("abort_loading", "interrupts"),
    ("unknown_pin", "sessions"),
    ("stall", "tenants"),
    ("preemption_thrash", "sessions"),
    ("tenant_surge", "interrupts"),
    ("eviction_storm", "sessions"),
)
_UNSEEN = ("shared_prefix", "unknown_pin", "eviction_storm")
GROUPS = {
    "documents and sessions": ("long_document", "long_sessions", "plateau"),
    "bursts": ("retry_burst", "burst", "ramp", "mass_abort"),
    "stops": ("restart", "pause", "sleep", "quiet"),
    "bounded delay": ("bounded_delay",),
    "ordinary": (),
}
HEALTHY = (
    *((group, "usual") for group in GROUPS if group != "ordinary"),
    *(("ordinary", style) for style in _STYLES if style != "usual"),
    ("bursts", "sessions"),
    ("bursts", "interrupts"),
    ("stops", "tenants"),
    ("stops", "sessions"),
    ("bounded delay", "interrupts"),
    ("documents and sessions", "urgent"),
)


def _called(what: str, style: str) -> str:
    return what if style == "usual" else f"{what}, {style}"


def recipes() -> tuple[Recipe, ...]:
    """Return the recipes; none without an environment that has vLLM."""
    if not PYTHON.exists():
        return ()
    faults = [
        _recipe(_called(kind, style), _VERDICTS[kind], partial(faulty, kind, style), 1, 1, unseen=kind in _UNSEEN)
        for kind, style in FAULTS
    ]
    quiet = [
        _recipe(_called(name, style), "", partial(healthy, GROUPS[name], style), 1, 2, unseen=False)
        for name, style in HEALTHY
    ]
    return (*faults, *quiet)


def prepare(wanted: Sequence[Scenario]) -> None:
    """Simulate what ``wanted`` lacks, one after the other in one process. Raises KvtideError where that fails."""
    specs = [_SPECS[each.recipe.name](Random(each.seed)) for each in wanted if each.recipe.name in _SPECS]
    missing = [spec for spec in specs if not path_of(spec).exists()]
    if not missing:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with Simulator(PYTHON) as simulator:
        for spec in missing:
            simulate(spec, path_of(spec), simulator=simulator)
