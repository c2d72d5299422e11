"""When the agent makes an engine's KV pool smaller by itself, and when it has it grow back."""

from __future__ import annotations

from pydantic import Field

from agent.policy.section import Section


class CompactionPolicy(Section):
    """Live compaction. What a pool needs: blocks held, what growth adds by the forecast, cached ones that are hit."""

    ascending = (("idle_ratio", "neighbour_ratio"), ("fill_ratio", "grow_ratio"))

    idle_ratio: float = Field(0.30, gt=0, le=1, description="a pool of which no more is needed is too big ...")
    idle_seconds: float = Field(1800.0, ge=1, description="... when that was so for so long")
    neighbour_ratio: float = Field(0.40, gt=0, le=1, description="as idle_ratio, while a neighbour is short of memory")
    neighbour_seconds: float = Field(60.0, ge=1, description="as idle_seconds, while a neighbour is short of memory")
    forecast_seconds: float = Field(1800.0, ge=0, description="growth is reckoned so far ahead")
    keep_hit_ratio: float = Field(
        0.20, ge=0, le=1, description="share of prompt tokens found in the cache that it is kept for"
    )
    fill_ratio: float = Field(0.50, gt=0, le=1, description="share of the smaller pool that is needed when it is made")
    grow_ratio: float = Field(0.75, gt=0, le=1, description="share of it that is needed when all comes back")
    floor_ratio: float = Field(0.25, gt=0, le=1, description="share of the whole pool that is always left")
    least_ratio: float = Field(0.20, gt=0, le=1, description="share of the whole pool below which nothing is worth it")
    cooldown_seconds: float = Field(3600.0, ge=1, description="since the last compaction of an engine began or ended")
