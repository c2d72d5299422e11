"""Every threshold, in one value. Ratios are 0..1, rates are shares of the pool (or of the memory) a minute.

The numbers are the incident write-ups' (DESIGN section 7). ``textbook`` has the same numbers as ``default`` and judges
use and growth alone, as the write-ups do; ``default`` asks for harm, for growth that nobody explains, or for a forecast
that is short. ``latency`` and ``throughput`` judge as the default does, by numbers of their own: see
:mod:`agent.policy.profiles`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from agent.policy.actions import ActionsPolicy
from agent.policy.admission import AdmissionPolicy
from agent.policy.compaction import CompactionPolicy
from agent.policy.profiles import with_overrides
from agent.policy.section import Section

Profile = Literal["default", "latency", "throughput", "textbook"]


class UsePolicy(Section):
    """Use of the device or of the pool."""

    ascending = (("warn_ratio", "page_ratio"), ("kv_share_warn_ratio", "kv_share_page_ratio"))

    warn_ratio: float = Field(0.85, ge=0, le=1, description="share in use that warns")
    warn_seconds: float = Field(30.0, ge=0, description="for so long")
    page_ratio: float = Field(0.95, ge=0, le=1, description="share in use that pages")
    page_seconds: float = Field(10.0, ge=0, description="for so long")
    kv_share_warn_ratio: float = Field(0.80, ge=0, le=1, description="KV cache's share of the device that warns")
    kv_share_page_ratio: float = Field(0.90, ge=0, le=1, description="KV cache's share of the device that pages")
    harm_seconds: float = Field(60.0, ge=0, description="use with harm must last so long, in the default profile")


class GrowthPolicy(Section):
    """Growth of held blocks, and how it accelerates."""

    ascending = (("warn_per_minute", "page_per_minute"),)

    warn_per_minute: float = Field(0.05, gt=0, description="growth that warns")
    page_per_minute: float = Field(0.08, gt=0, description="growth that pages")
    page_seconds: float = Field(180.0, ge=0, description="for so long")
    forecast_seconds: float = Field(300.0, gt=0, description="a pool that is full sooner than that is short of time")
    forecast_held_ratio: float = Field(0.70, ge=0, le=1, description="a forecast counts above this share held")
    accelerating_per_minute: float = Field(0.02, ge=0, description="acceleration counts above this growth")
    doubling_seconds: float = Field(120.0, gt=0, description="growth that doubles inside this time pages")
    grace_seconds: float = Field(120.0, ge=0, description="after a start or a restore nothing is judged for so long")


class HostPolicy(Section):
    """Growth of host and process memory, restarts."""

    ascending = (("warn_per_minute", "page_per_minute"), ("restarts_warn", "restarts_page"))

    warn_per_minute: float = Field(0.01, gt=0, description="growth that warns")
    warn_seconds: float = Field(600.0, ge=0, description="over so long")
    page_per_minute: float = Field(0.03, gt=0, description="growth that pages")
    limit_seconds: float = Field(1800.0, gt=0, description="a limit reached sooner than that pages")
    restarts_warn: int = Field(2, ge=1, description="restarts that warn")
    restarts_page: int = Field(3, ge=1, description="restarts that page")
    gone_seconds: float = Field(
        60.0, ge=0, description="an engine that is gone for so long with no successor is missed"
    )


class AllocatorPolicy(Section):
    """torch's allocator, and how blocks are obtained."""

    ascending = (
        ("fragmentation_warn_ratio", "fragmentation_alert_ratio", "fragmentation_page_ratio"),
        ("overcommit_light", "overcommit_heavy"),
        ("latency_warn_seconds", "latency_page_seconds"),
    )

    fragmentation_warn_ratio: float = Field(0.20, ge=0, le=1, description="fragmentation that is noted")
    fragmentation_alert_ratio: float = Field(0.30, ge=0, le=1, description="fragmentation that warns")
    fragmentation_page_ratio: float = Field(0.40, ge=0, le=1, description="fragmentation that pages")
    failures_in_a_row: int = Field(5, ge=1, description="refused allocations in a row that page")
    overcommit_light: float = Field(1.2, ge=1, description="reserved / allocated that warns")
    overcommit_heavy: float = Field(1.5, ge=1, description="reserved / allocated that pages")
    latency_warn_seconds: float = Field(0.050, gt=0, description="p99 of the time to get blocks that warns")
    latency_page_seconds: float = Field(0.500, gt=0, description="p99 of the time to get blocks that pages")
    retries: int = Field(3, ge=1, description="refusals of one request that warn, when there are more")


class ServingPolicy(Section):
    """Queue, errors, latency, rebuild."""

    ascending = (
        ("queue_warn", "queue_page"),
        ("failed_warn_ratio", "failed_page_ratio"),
        ("latency_warn_times", "latency_page_times"),
        ("rebuild_warn_ratio", "rebuild_page_ratio"),
    )

    queue_warn: int = Field(50, ge=0, description="waiting requests that warn")
    queue_page: int = Field(100, ge=0, description="waiting requests that page")
    failed_warn_ratio: float = Field(0.01, ge=0, le=1, description="failed decodes that warn")
    failed_page_ratio: float = Field(0.05, ge=0, le=1, description="failed decodes that page")
    latency_warn_times: float = Field(1.5, gt=1, description="P99 latency against its baseline that warns")
    latency_page_times: float = Field(3.0, gt=1, description="P99 latency against its baseline that pages")
    rebuild_warn_ratio: float = Field(0.15, ge=0, le=1, description="recomputed share of prefill that warns")
    rebuild_page_ratio: float = Field(0.30, ge=0, le=1, description="recomputed share of prefill that pages")


class WorkloadPolicy(Section):
    """What is asked of the engine, against what was learned."""

    ascending = (
        ("long_tail_warn_times", "long_tail_page_times"),
        ("long_tail_from_ratio", "long_tail_to_ratio"),
        ("context_warn_times", "context_page_times"),
        ("repetition_warn_ratio", "repetition_page_ratio"),
    )

    long_tokens: int = Field(4096, ge=1, description="a context longer than that is of the long tail")
    long_tail_warn_times: float = Field(1.5, gt=1, description="long-tail share against its baseline that warns")
    long_tail_page_times: float = Field(3.0, gt=1, description="long-tail share against its baseline that pages")
    long_tail_from_ratio: float = Field(0.05, ge=0, le=1, description="a share that rises from this one ...")
    long_tail_to_ratio: float = Field(0.35, ge=0, le=1, description="... to this one pages")
    context_warn_times: float = Field(2.0, gt=1, description="mean context against its baseline that warns")
    context_page_times: float = Field(5.0, gt=1, description="mean context against its baseline that pages")
    repetition_warn_ratio: float = Field(0.30, ge=0, le=1, description="share of repeated prompts that warns")
    repetition_page_ratio: float = Field(0.60, ge=0, le=1, description="share of repeated prompts that pages")
    spread_times: float = Field(5.0, gt=1, description="longest against mean context that is noted")


class TenantPolicy(Section):
    """Tenants, their sessions and quotas."""

    ascending = (("session_warn_seconds", "session_page_seconds"),)

    quota_warn_ratio: float = Field(0.80, ge=0, le=1, description="share of its quota at which a tenant is warned of")
    session_warn_seconds: float = Field(120.0, gt=0, description="median session life that warns")
    session_page_seconds: float = Field(600.0, gt=0, description="median session life that pages")
    surge_times: float = Field(
        2.0, gt=1, description="a tenant's share or rate against its own baseline that is a surge"
    )
    surge_share_ratio: float = Field(0.30, ge=0, le=1, description="share of the pool below which a surge is none")
    long_session: tuple[str, ...] = Field(
        (), strict=False, description="tenants that are judged by their own baseline instead"
    )


class ResiduePolicy(Section):
    """Memory that stays after interrupted requests, and quantiles of KV memory."""

    ascending = (("warn_bytes", "page_bytes"), ("kv_p90_bytes", "kv_p99_bytes"))

    warn_bytes: int = Field(50_000_000, ge=0, description="residue of a node that warns")
    page_bytes: int = Field(200_000_000, ge=0, description="residue of a node that pages")
    sleep_bytes: int = Field(4 * 2**30, ge=0, description="memory that a sleeping engine's process may keep on a GPU")
    kv_p90_bytes: int = Field(8_000_000_000, ge=0, description="90 % quantile of KV memory that warns")
    kv_p99_bytes: int = Field(12_000_000_000, ge=0, description="99 % quantile of KV memory that pages")
    tooth_amplitude_ratio: float = Field(0.30, ge=0, le=1, description="amplitude of a saw-tooth that warns")
    tooth_floor_ratio: float = Field(0.40, ge=0, le=1, description="floor of a saw-tooth that warns")


class ScorePolicy(Section):
    """The health score."""

    ascending = (("emergency_below", "severe_below", "warn_below"),)

    reserve_ratio: float = Field(0.10, ge=0, le=1, description="part of the pool that is no head-room")
    comfortable_ratio: float = Field(0.20, gt=0, le=1, description="head-room at which nothing is taken off")
    warn_below: float = Field(60.0, ge=0, le=100, description="warning: respond in 30 min")
    severe_below: float = Field(40.0, ge=0, le=100, description="severe: respond in 15 min")
    emergency_below: float = Field(20.0, ge=0, le=100, description="emergency: respond now")


class Policy(Section):
    """All thresholds. ``profile``: what they are held against, see the module."""

    profile: Profile = Field(
        "default", description="default asks for harm, latency sooner, throughput later; textbook: the numbers alone"
    )
    use: UsePolicy = UsePolicy()
    growth: GrowthPolicy = GrowthPolicy()
    host: HostPolicy = HostPolicy()
    allocator: AllocatorPolicy = AllocatorPolicy()
    serving: ServingPolicy = ServingPolicy()
    workload: WorkloadPolicy = WorkloadPolicy()
    tenants: TenantPolicy = TenantPolicy()
    residue: ResiduePolicy = ResiduePolicy()
    score: ScorePolicy = ScorePolicy()
    actions: ActionsPolicy = ActionsPolicy()
    admission: AdmissionPolicy = AdmissionPolicy()
    compaction: CompactionPolicy = CompactionPolicy()
    fp8_factor: float = Field(0.85, gt=0, le=1, description="times each threshold of use with FP8 KV or weights")

    @model_validator(mode="before")
    @classmethod
    def _by_profile(cls, data: Any) -> Any:
        """Let the profile say what the file does not."""
        return with_overrides(data)


DEFAULT = Policy()
TEXTBOOK = Policy(profile="textbook")
