"""Engines with hooks, from the metrics that their agent exports."""

from __future__ import annotations

from typing import Any

from agent.backtest.prometheus.detail import detail_of
from agent.backtest.prometheus.members import members_of, memory_of
from agent.backtest.prometheus.moment import Moment
from agent.state import EngineState, PoolState
from engine_hooks.members import CORE, FRONTEND, WORKER


class Engines:
    """Makes one target's engines; remembers since when one is silent, and whether one has begun anew."""

    def __init__(self) -> None:
        self._live_at: dict[str, float] = {}
        self._steps: dict[str, tuple[str, int, int]] = {}

    def of(self, name: str, engine: Moment, at: float) -> EngineState | None:
        """Return the engine ``name`` as the scrape of ``at`` has it; None where it has none."""
        up = engine.number("kvtide_engine_up")
        if up is None:
            return None
        started = engine.number("kvtide_engine_start_time_seconds") or 0.0
        steps = engine.count("kvtide_engine_steps_total")
        values: dict[str, Any] = {
            "engine": name,
            "engine_id": engine.text("kvtide_engine_info", "engine_id"),
            # Not by its id: where a Prometheus has no marks of what vanished, the old one's stays for a while.
            "instance": self._instance(name, f"{started}", steps),
            "host": "",
            "pid": 0,
            "index": 0,
            "rank": 0,
            "started_at": started,
            "engine_version": engine.text("kvtide_engine_info", "vllm_version"),
            "hooks_version": engine.text("kvtide_engine_info", "hooks_version"),
            "phase": "live" if up == 1 else "silent",
            "reason": "" if up == 1 else "its metrics say that it does not report",
            "link_up": up == 1,
            "report_age_seconds": 0.0 if up == 1 else at - self._live_at.get(name, at),
            "report_sequence": None,
            "steps": None,
            "running": None,
            "waiting": None,
            "pool": None,
            "audit_supported": engine.flag("kvtide_audit_supported"),
            "audit_reason": "",
            "hooks": None,
            "workers_expected": engine.count("kvtide_members_expected", role=WORKER),
            "frontends_expected": engine.count("kvtide_members_expected", role=FRONTEND),
            "members": members_of(engine),
            "memory": memory_of(engine, role=CORE),
        }
        if up == 1:
            self._live_at[name] = at
            values |= {
                "steps": steps,
                "running": engine.count("kvtide_requests_running"),
                "waiting": engine.count("kvtide_requests_waiting"),
                "pool": _pool(engine),
                "detail": detail_of(engine, at),
            }
        else:
            self._live_at.setdefault(name, at)
        return EngineState(**values)

    def _instance(self, name: str, told: str, steps: int | None) -> str:
        """Return who it is. Where metrics do not tell, a counter that falls does."""
        before, last, resets = self._steps.get(name, ("", 0, 0))
        if steps is not None:
            if before == told and steps < last:
                resets += 1
            self._steps[name] = (told, steps, resets)
        return f"{told}#{resets}"


def _pool(engine: Moment) -> PoolState | None:
    capacity, held = engine.count("kvtide_kv_blocks_capacity"), engine.count("kvtide_kv_blocks_held")
    if capacity is None or held is None:
        return None
    tokens = {row.value for row in engine.rows("kvtide_kv_group_block_tokens")}
    most = engine.count("kvtide_kv_blocks_held_max")
    return PoolState(
        capacity=capacity,
        held=held,
        held_min=held,
        held_max=held if most is None else max(held, most),
        cached_idle=engine.count("kvtide_kv_blocks_cached_idle"),
        empty=engine.count("kvtide_kv_blocks_empty"),
        orphaned=engine.count("kvtide_kv_blocks_orphaned"),
        over_freed=engine.count("kvtide_kv_blocks_over_freed"),
        exact=engine.flag("kvtide_audit_exact"),
        audits=engine.count("kvtide_audits_total") or 0,
        ledger_drift=engine.count("kvtide_ledger_drift_references_total") or 0,
        block_tokens=int(tokens.pop()) if len(tokens) == 1 else None,
        block_bytes=engine.count("kvtide_kv_block_bytes"),
        delayed=engine.count("kvtide_kv_blocks_delayed"),
        deferred=engine.count("kvtide_kv_blocks_deferred"),
        pinned=engine.count("kvtide_kv_blocks_pinned"),
    )
