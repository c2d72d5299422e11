"""What may be done about verdicts: which levers, in which order, how often, when, and what stops it all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from agent.actions.types import Mode
from agent.policy.section import Section

# All that can be ordered; each engine says which of them it has and which it may.
Lever = Literal[
    "watermark",
    "active_cap",
    "batch_tokens",
    "evict_idle",
    "hold_hot",
    "reclaim_orphans",
    "trim",
    "compact",
    "end_zombies",
    "admission",
    "enforce_admission",
    "preempt",
    "reclaim_delayed",
    "pause",
    "reset_prefix",
    "weight",
    "sleep",
    "restart",
]
# What the agent plans by itself, mildest first; three of them pull the lever ``admission``.
Rung = Literal[
    "quotas",
    "concurrency",
    "watermark",
    "active_cap",
    "batch_tokens",
    "evict_idle",
    "hold_hot",
    "reclaim_orphans",
    "trim",
    "compact",
    "end_zombies",
    "shed",
    "preempt",
    "reclaim_delayed",
    "restart",
    "restart_silent",
]
OptIn = Literal["compact", "reclaim_delayed", "sleep", "restart", "restart_silent"]
LEVERS: tuple[str, ...] = get_args(Lever)
RUNGS: tuple[Rung, ...] = get_args(Rung)
SILENT_RUNG: Rung = "restart_silent"
OPT_IN: frozenset[str] = frozenset(get_args(OptIn))
_WINDOW = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


def minutes_of(window: str) -> tuple[int, int]:
    """Return a window's two ends as minutes of the day; raises ValueError."""
    found = _WINDOW.fullmatch(window)
    if found is None:
        raise ValueError('must be like "22:00-06:00", of 00:00 to 23:59')
    first, second, third, fourth = map(int, found.groups())
    return 60 * first + second, 60 * third + fourth


def inside(windows: tuple[str, ...], minute: int) -> bool:
    """Whether a minute of the day is in one of the windows; one that ends before it begins goes past midnight."""
    for begin, end in map(minutes_of, windows):
        if begin <= minute < end or (end <= begin and (minute >= begin or minute < end)):
            return True
    return False


def _windows(windows: tuple[str, ...]) -> tuple[str, ...]:
    for window in windows:
        minutes_of(window)
    return windows


def _absolute(path: str) -> str:
    if path and not Path(path).is_absolute():
        raise ValueError("must be an absolute path")
    return path


Windows = Annotated[tuple[str, ...], AfterValidator(_windows)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class ActionsPolicy(Section):
    """What may be done, how often and when."""

    mode: Mode = Field("observe", description="of all levers that are not named: observe, dry-run or enforce")
    levers: dict[Lever, Mode] = Field({}, description="modes by lever, such as {watermark: enforce}")
    engines: dict[str, dict[Lever, Mode]] = Field({}, description="modes by engine and lever; they win")
    opt_in: tuple[OptIn, ...] = Field(
        (), strict=False, description="levers, and one rung, that need a word of their own beside their mode"
    )
    ladder: tuple[Rung, ...] = Field(RUNGS, strict=False, description="what is tried, in this order; others are not")
    breaches: int = Field(3, ge=1, description="looks in a row at which the verdict must stand")
    cooldown_seconds: float = Field(60.0, ge=0, description="between two actions with one lever on one scope")
    budget_per_hour: int = Field(12, ge=1, le=1000, description="actions an hour; one more opens the breaker")
    restarts_per_hour: int = Field(2, ge=1, le=12, description="of one engine; one more opens the breaker")
    silent_seconds: float = Field(300.0, ge=60, description="an engine that is silent for so long may be restarted")
    lease_seconds: float = Field(30.0, ge=3, le=3600, description="after so long without the agent it is undone")
    stale_seconds: float = Field(5.0, gt=0, description="how old the state of an engine may be")
    verify_seconds: float = Field(20.0, gt=0, description="after so long the number must have moved, or it is undone")
    answer_seconds: float = Field(5.0, gt=0, le=60, description="how long an engine's answer is waited for")
    breaker_failures: int = Field(3, ge=1, description="actions in a row that failed or did not help: breaker open")
    calm_seconds: float = Field(120.0, ge=0, description="without a verdict for so long: taken back, step by step")
    undo_step_seconds: float = Field(10.0, ge=0, description="between two steps of taking back")
    undo_factor: float = Field(1.25, gt=1, description="by how much a step of taking back loosens a limit")
    step_factor: float = Field(0.8, gt=0, lt=1, description="by how much a step of throttling tightens a limit")
    active_floor: int = Field(16, ge=1, description="requests at once that a cap leaves at least")
    watermark_ratio: float = Field(0.05, gt=0, le=0.5, description="share of the pool that the watermark keeps free")
    watermark_most_ratio: float = Field(0.20, gt=0, le=0.5, description="what it may be raised to")
    maintenance: Windows = Field((), strict=False, description="local times at which nothing is done: 22:00-06:00")
    off_peak: Windows = Field((), strict=False, description="local times for heavy levers; none given: any time")
    heavy: tuple[Lever, ...] = Field(
        ("trim", "compact", "reset_prefix", "sleep", "restart"),
        strict=False,
        description="levers that wait for off-peak times",
    )
    fleet_share: float = Field(0.20, ge=0, le=1, description="same verdict on more than this share of nodes: frozen")
    fleet_file: AbsolutePath = Field("", description="file with the fleet's shares by kind; see actions.md")
    off_switch_file: AbsolutePath = Field("", description="file that switches the fleet off: see actions.md")
    shared_gpu: bool = Field(False, description="act also where others use the GPU")

    ascending = (("watermark_ratio", "watermark_most_ratio"),)

    def mode_of(self, lever: str, engine: str) -> Mode:
        """Return the mode of a lever on an engine: the engine's own, else the lever's, else that of all."""
        own: dict[str, Mode] = {str(name): mode for name, mode in self.levers.items()}
        own |= {str(name): mode for name, mode in self.engines.get(engine, {}).items()}
        return own.get(lever, self.mode)

    def strongest(self) -> Mode:
        """Return the strongest mode that any lever has."""
        modes = {self.mode, *self.levers.values()}
        modes |= {mode for levers in self.engines.values() for mode in levers.values()}
        return next(mode for mode in ("enforce", "dry-run", "observe") if mode in modes)
