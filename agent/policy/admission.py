"""Who may hold how much of the pool, and what is turned away first."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.policy.section import Section

Factor = Annotated[float, Field(ge=0, le=1000)]


class AdmissionPolicy(Section):
    """Tenants' quotas, reserved blocks, and what is turned away under pressure."""

    ascending = (("over_long_tokens", "batch_path_tokens"),)

    quota_ratio: float = Field(0.25, gt=0, le=1, description="base quota: share of the pool that a tenant may hold")
    sla_factors: dict[str, Factor] = Field({}, description="by tenant: quota = base * (1 + this) * paid factor")
    paid_factors: dict[str, Factor] = Field({}, description="by tenant: quota = base * (1 + SLA factor) * this")
    priority: tuple[str, ...] = Field((), strict=False, max_length=32, description="tenants that are held back last")
    reserved_ratio: float = Field(0.20, ge=0, le=0.9, description="share of the pool for priority tenants alone")
    concurrency_floor: int = Field(2, ge=1, le=1024, description="requests at once that a tenant keeps at least")
    over_long_tokens: int = Field(4096, ge=1, description="under pressure, longer prompts get a 429")
    batch_path_tokens: int = Field(8192, ge=1, description="longer ones are advised to use the batch path")
    request_share_ratio: float = Field(
        0.90, gt=0, le=1, description="under pressure, no request may come to hold more than this share of one pool"
    )
    retry_after_seconds: int = Field(10, ge=1, le=3600, description="Retry-After of what is turned away")

    def quota_of(self, tenant: str, capacity: int, base: int | None = None) -> int:
        """Return a tenant's quota in blocks, one at least: base * (1 + SLA factor) * paid-rate factor (DESIGN 7).

        ``base``: blocks that the tenant map lets it hold; None: the policy's share of the pool.
        """
        base = int(self.quota_ratio * capacity) if base is None else base
        factor = (1 + self.sla_factors.get(tenant, 0.0)) * self.paid_factors.get(tenant, 1.0)
        return max(1, min(capacity, int(base * factor)))

    def reserved_of(self, capacity: int) -> dict[str, int | float]:
        """Return the blocks that others leave free, by priority tenant: all have the same part of what is reserved."""
        each = int(self.reserved_ratio * capacity) // max(1, len(self.priority))
        return dict.fromkeys(self.priority, each) if each else {}
