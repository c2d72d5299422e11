"""Details with values that a test can know by heart; each builder takes what it should say instead."""

from __future__ import annotations

from typing import Any

from engine_hooks.detail import (
    AllocationRow,
    CompactionRow,
    DelayedRow,
    Detail,
    EncoderRow,
    GroupRow,
    Histogram,
    LeakRow,
    PinRow,
    PoolRow,
    SpeculationRow,
    TenantRow,
    TierRow,
    WaitingRow,
    WorkRow,
)


def make_histogram(**changes: Any) -> Histogram:
    """Ten values: 5 up to 0.1, 3 up to 1, 2 above."""
    values: dict[str, Any] = {"bounds": (0.1, 1.0), "counts": (5, 3, 2), "sum": 7.5}
    return Histogram(**values | changes)


def make_pool_row(**changes: Any) -> PoolRow:
    """A tier in host memory with one leaked block."""
    values: dict[str, Any] = {"pool": "cpu", "capacity": 512, "held": 40, "orphaned": 1, "over_freed": 2}
    return PoolRow(**values | changes)


def make_group(**changes: Any) -> GroupRow:
    """Group 0 of full attention."""
    values: dict[str, Any] = {
        "group": 0,
        "kind": "full_attention",
        "pool": "gpu",
        "layers": 16,
        "block_tokens": 32,
        "block_bytes": 65536,
        "references": 310,
    }
    return GroupRow(**values | changes)


def make_leak(**changes: Any) -> LeakRow:
    """Four blocks of acme's, whose request was aborted 14 s ago."""
    values: dict[str, Any] = {
        "kind": "orphaned",
        "pool": "gpu",
        "tenant": "acme",
        "session": "5e55",
        "request": "3fa2b1c4d5e6",
        "ending": "aborted_front_end",
        "blocks": 4,
        "references": 5,
        "age_seconds": 14.0,
    }
    return LeakRow(**values | changes)


def make_delayed(**changes: Any) -> DelayedRow:
    """Three requests inside their lease of eight minutes."""
    values: dict[str, Any] = {
        "peer": "10.0.0.7:5600",
        "direction": "send",
        "requests": 3,
        "blocks": 40,
        "oldest_seconds": 42.0,
        "lease_seconds": 480.0,
        "expired": 0,
        "tenants": {"acme": 30, "none": 10},
    }
    return DelayedRow(**values | changes)


def make_pin(**changes: Any) -> PinRow:
    """References that a connector's own books explain."""
    values: dict[str, Any] = {
        "holder": "SimpleKVOffload",
        "pool": "gpu",
        "known": True,
        "references": 12,
        "oldest_seconds": 3.0,
        "orphaned_after_seconds": None,
    }
    return PinRow(**values | changes)


def make_tenant(**changes: Any) -> TenantRow:
    """A tenant with a bit of everything."""
    values: dict[str, Any] = {
        "tenant": "acme",
        "running": 5,
        "waiting": 2,
        "held": 180.5,
        "references": 200,
        "requests_total": 1000,
        "prompt_tokens_total": 50_000,
        "generated_tokens_total": 20_000,
        "preempted_total": 3,
        "ended_total": {"finished": 980, "aborted_front_end": 13},
        "sessions": 17,
        "session_lifetime_seconds": make_histogram(sum=8.5),
        "session_idle_seconds": make_histogram(sum=9.5),
        "quota_blocks": 400,
        "held_age_seconds": 0.75,
    }
    return TenantRow(**values | changes)


def make_allocation(**changes: Any) -> AllocationRow:
    """Counts that are all different."""
    values: dict[str, Any] = {
        "block_seconds": make_histogram(bounds=(1e-05, 0.001), sum=0.5),
        "wait_seconds": make_histogram(),
        "blocks_taken_total": 9000,
        "blocks_given_back_total": 8700,
        "refused_total": 21,
        "preempted_total": 6,
        "consecutive_refusals": 2,
        "most_consecutive_refusals": 9,
        "most_retries": 4,
        "over_three_retries_total": 1,
        "waiting_refused": 3,
        "oldest_refused_seconds": 4.5,
    }
    return AllocationRow(**values | changes)


def make_work(**changes: Any) -> WorkRow:
    """Tokens scheduled, some of them for the second time."""
    values: dict[str, Any] = {
        "scheduled_tokens_total": 70_000,
        "prefill_tokens_total": 50_500,
        "rebuilt_preempted_total": 480,
        "rebuilt_evicted_total": 320,
        "rebuild_seconds_total": 1.25,
        "request_seconds": make_histogram(sum=6.5),
        "tail_slots": 150,
        "steepest_slope": 2.5,
        "steepest_request": "aa11bb22cc33",
        "prompt_tokens": make_histogram(sum=7.5),
    }
    return WorkRow(**values | changes)


def make_speculation(**changes: Any) -> SpeculationRow:
    """Drafts, some interrupted, none with a residue."""
    values: dict[str, Any] = {
        "drafted_tokens_total": 4000,
        "accepted_tokens_total": 2500,
        "rounds_total": 1300,
        "interruptions_total": 11,
        "residue_blocks_total": 0,
        "states": {"drafting": 4, "committed": 1},
        "stuck": 0,
        "stuck_after_seconds": 30.0,
    }
    return SpeculationRow(**values | changes)


def make_encoder(**changes: Any) -> EncoderRow:
    """An encoder cache with one orphaned entry."""
    values: dict[str, Any] = {
        "capacity": 8192,
        "held": 1024,
        "freeable": 512,
        "entries": 3,
        "orphaned_entries": 1,
        "orphaned_tokens": 256,
    }
    return EncoderRow(**values | changes)


def make_tier(**changes: Any) -> TierRow:
    """Host memory with one stuck job."""
    values: dict[str, Any] = {
        "tier": "cpu",
        "capacity": 2048,
        "used": 700,
        "pending": 5,
        "oldest_seconds": 61.0,
        "stuck": 1,
        "stuck_after_seconds": 60.0,
        "cached": 600,
        "abandoned": 2,
        "unseen": 8,
    }
    return TierRow(**values | changes)


def make_waiting(**changes: Any) -> WaitingRow:
    """Three wait, and nothing has moved for 3.5 s."""
    values: dict[str, Any] = {
        "reasons": {"memory": 2, "grammar": 1},
        "idle_steps": 12,
        "stalled_seconds": 3.5,
        "stalled_by": "memory",
        "unseen": 14,
    }
    return WaitingRow(**values | changes)


def make_compaction(**changes: Any) -> CompactionRow:
    """A pool that is smaller by 900 blocks."""
    values: dict[str, Any] = {
        "state": "shrunk",
        "offline": 900,
        "moved_total": 203,
        "moved_idle_total": 53,
        "dropped_total": 31,
        "grown_total": 17,
        "demanded_total": 11,
        "released_bytes": 29_491_200,
        "pause_seconds": make_histogram(sum=8.5),
    }
    return CompactionRow(**values | changes)


def make_detail(**changes: Any) -> Detail:
    """Every section has something to say."""
    values: dict[str, Any] = {
        "monotonic": 50.0,
        "transfer_id": "nixl-m",
        "pools": (make_pool_row(),),
        "groups": (make_group(), make_group(group=1, kind="sliding_window", references=40)),
        "leaks": (make_leak(), make_leak(kind="over_freed", blocks=1, references=-1, ending="finished")),
        "delayed": (make_delayed(),),
        "pins": (
            make_pin(),
            make_pin(holder="OddConnector", known=False, oldest_seconds=30.0, orphaned_after_seconds=600.0),
        ),
        "tenants": (make_tenant(), make_tenant(tenant="none", running=1, held=20.0)),
        "allocation": make_allocation(),
        "work": make_work(),
        "speculation": make_speculation(),
        "encoder": make_encoder(),
        "tiers": (make_tier(),),
        "waiting": make_waiting(),
        "compaction": make_compaction(),
    }
    return Detail(**values | changes)
