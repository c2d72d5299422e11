"""What is asked of a Prometheus: our own metrics by subject, and the pages of engines without hooks.

One query for each subject keeps questions and answers short.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from agent.sources.scrape.families import ALL_NAMES

PREFIX = "kvtide_"
ENGINE, SCRAPED, GPU, AGENT = "kvtide_engine_up", "kvtide_scraped_up", "kvtide_gpu_up", "kvtide_build_info"
PAGES = {
    "vllm": r"(ray_)?vllm[:_]num_requests_running",
    "sglang": r"(ray_)?sglang[:_](num_running_reqs|num_requests_running)",
}
"""A gauge that each page of an engine has, by the kind of engine: when it was scraped is when the page was."""


class Subject(NamedTuple):
    """Metrics of one query, as a regular expression for the part of their names after the prefix."""

    name: str
    pattern: str


SUBJECTS: tuple[Subject, ...] = (
    Subject("engine", "engine_(info|start_time_seconds|up|steps_total|restarts|oom_kills_total|transfer_info)"),
    Subject("requests", "requests_(running|waiting|waiting_by_reason|waiting_unseen)|idle_steps|stalled_(seconds|by)"),
    Subject(
        "pool",
        "kv_blocks_(capacity|held|held_max|cached_idle|empty|orphaned|over_freed|delayed|deferred|pinned)"
        "|kv_block_bytes|kv_group_block_tokens|audit_(supported|exact)|audits_total|ledger_drift_references_total",
    ),
    Subject(
        "kept",
        "kv_leaked_blocks|kv_delayed_(blocks|requests|oldest_seconds|expired_blocks|lease_seconds)"
        "|kv_pinned_(references|oldest_seconds|limit_seconds)|pool_blocks_(capacity|held|orphaned|over_freed)",
    ),
    Subject(
        "allocation",
        "(block_allocation|admission_wait)_seconds_(bucket|sum)|blocks_(taken|given_back)_total"
        "|allocation_(refused_total|refusals_consecutive|refusals_consecutive_max|retries_max|retried_requests_total)"
        "|requests_(preempted_total|waiting_refused|waiting_refused_oldest_seconds)",
    ),
    Subject(
        "work",
        "tokens_scheduled_total|prefill_tokens_total|rebuilt_tokens_total|rebuild_seconds_total"
        "|request_block_lifetime_seconds_(bucket|sum)|tail_waste_slots|request_growth_max_blocks_per_second",
    ),
    Subject(
        "tenants",
        "tenant_(blocks_held|blocks_held_age_seconds|quota_blocks|block_references|requests_running|requests_waiting"
        "|requests_total|requests_ended_total|tokens_total|preempted_total|sessions"
        "|session_(lifetime|idle)_seconds_(bucket|sum))",
    ),
    Subject(
        "speculation",
        "speculation_(drafted_tokens_total|accepted_tokens_total|rounds_total|interruptions_total"
        "|residue_blocks_total|requests|requests_stuck|stuck_after_seconds)",
    ),
    Subject(
        "members",
        "member_(up|kv_bytes|parameter_bytes|resident_bytes|cgroup_bytes|cgroup_limit_bytes)"
        "|members_(expected|unjoined)|torch_process_(up|resident_bytes)|memory_failures_total",
    ),
    Subject(
        "allocator",
        "allocator_(up|info|(allocated|requested|active|reserved|inactive_split|free|largest_free_block|releasable"
        "|expandable|private_reserved|tag|tag_mapped)_bytes|(retries|ooms|device_allocs|device_frees)_total"
        "|segments|streams)",
    ),
    Subject(
        "gpus",
        "gpu_(up|info|memory_bytes|unified_memory|xid_errors_total|remapped_rows|row_remap_(pending|failed))"
        "|waterfall_(bytes|error_bytes)",
    ),
    Subject(
        "host",
        "process_info|process_(resident|swap|proportional|unique)_bytes|host_memory_bytes|dead_process_memory_bytes"
        "|host_oom_kills_total",
    ),
    Subject(
        "cgroups",
        "cgroup_memory_(current|working_set|limit|limit_current|high|swap)_bytes|cgroup_memory_events_total"
        "|cgroup_memory_(pressure_ratio|stalled_seconds_total)",
    ),
    Subject("scraped", "scraped_.*"),
    Subject("agent", "build_info|source_(up|reads_total|failures_total)|agent_ready"),
)


def selector(pattern: str, select: str) -> str:
    """Return a selector of the names that match ``pattern``, narrowed by ``select``, matchers as PromQL has them."""
    return f'{{__name__=~"{pattern}"{f",{select}" if select else ""}}}'


def of_subject(subject: Subject, select: str) -> str:
    """Return the query for one subject."""
    return selector(f"{PREFIX}({subject.pattern})", select)


def of_pages(kind: str, select: str) -> str:
    """Return the query for what is read of the pages of one kind of engine."""
    names = "|".join(map(re.escape, ALL_NAMES))
    return selector(f"(ray_)?{kind}[:_]({names})", select)


def scraped_at(pattern: str, select: str, by: str) -> str:
    """Return the query for when each was scraped last: the time of its sample, which no gap carries on."""
    labels = f"job,instance,{by}" if by else "job,instance"
    return f"max by ({labels}) (timestamp({selector(pattern, select)}))"
