"""The engines of a state, with hooks and without, each with what was made of it."""

from __future__ import annotations

from dataclasses import dataclass

from agent.faces.signals import LEAST_GROWTH
from agent.faces.verdicts import urgency
from agent.signals.types import EngineSignals, Score
from agent.sources.scrape.state import ScrapedEngine
from agent.state import AgentState, EngineState, Verdict
from agent.top.history import Who

SIGNS = {"warning": "!", "severe": "!!", "emergency": "!!!"}
_STYLES = {"warning": "warn", "severe": "bad", "emergency": "page"}
_FULL_SOON = 3600.0  # a forecast beyond that is no news in a list


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine: ``state`` of its hooks or ``page`` of its own metrics; one of them is None."""

    who: Who
    state: EngineState | None
    page: ScrapedEngine | None
    signals: EngineSignals | None
    health: Score | None
    verdicts: tuple[Verdict, ...]

    @property
    def quiet(self) -> str:
        """Why it has no values; empty where it has."""
        if self.state is not None:
            return "" if self.state.phase == "live" else f"{self.state.phase}: {self.state.reason}"
        if self.page is None or self.page.phase == "up":
            return ""
        return f"{self.page.phase.replace('_', ' ')}: {self.page.reason}"

    @property
    def held(self) -> float | None:
        """Held blocks as a share of the pool."""
        if self.state is not None:
            pool = self.state.pool
            return pool.held / pool.capacity if pool is not None and pool.capacity else None
        return self.page.usage_ratio if self.page is not None else None

    @property
    def running(self) -> int | None:
        """Running requests."""
        return self.state.running if self.state is not None else self.page.running if self.page else None

    @property
    def waiting(self) -> int | None:
        """Waiting requests."""
        return self.state.waiting if self.state is not None else self.page.waiting if self.page else None

    @property
    def growth(self) -> float | None:
        """Growth of held blocks, as a share of the pool a minute."""
        return self.signals.growth.per_minute if self.signals and self.signals.growth else None

    @property
    def full_in(self) -> float | None:
        """Seconds until the pool is full, where that is foreseen and near enough to be told in a list."""
        forecast = self.signals.exhaustion if self.signals else None
        return forecast.seconds if forecast and forecast.seconds <= _FULL_SOON else None


def rate_of(share: float) -> str:
    """Return a share of the pool a minute; what rounds to nothing has no sign."""
    return "0.0%" if abs(share) < LEAST_GROWTH else f"{share:+.1%}"


def engines_of(state: AgentState) -> list[Engine]:
    """Return all engines, those with hooks first, in the agent's order."""
    judgement = state.judgement
    signals = {Who(each.engine, each.hooked): each for each in (judgement.signals.engines if judgement else ())}
    health = {
        each.engine: each
        for each in (judgement.scores if judgement else ())
        if each.form == "kvtide" and each.scope == "engine"
    }
    verdicts: dict[str, list[Verdict]] = {}
    for each in sorted(judgement.verdicts if judgement else (), key=urgency):
        if each.subject.engine:
            verdicts.setdefault(each.subject.engine, []).append(each)
    found = []
    for hooked, rows in ((True, state.engines), (False, state.scrape.engines if state.scrape else ())):
        for row in rows:
            who = Who(row.engine, hooked)
            found.append(
                Engine(
                    who=who,
                    state=row if isinstance(row, EngineState) else None,
                    page=row if isinstance(row, ScrapedEngine) else None,
                    signals=signals.get(who),
                    health=health.get(row.engine),
                    verdicts=tuple(verdicts.get(row.engine, ())),
                )
            )
    return found


def standing(engine: Engine) -> list[Verdict]:
    """Return an engine's verdicts that stand and are more than a note, the most urgent first."""
    return [each for each in engine.verdicts if each.phase != "resolved" and each.tier != "note"]


def health_of(score: Score | None) -> tuple[str, str]:
    """Return a score as a number with a sign of its tier, and its style."""
    if score is None:
        return "-", "dim"
    return f"{score.value:.0f}{SIGNS.get(score.tier, '')}", _STYLES.get(score.tier, "good")


def worst_first(engines: list[Engine]) -> list[Engine]:
    """Return the engines by their worst verdict, then by health: what needs somebody is on top."""

    def key(engine: Engine) -> tuple[bool, int, int, float]:
        told = standing(engine)
        over, tier, phase = urgency(told[0]) if told else (True, 9, 9)
        return over, tier, phase, engine.health.value if engine.health else 101.0

    return sorted(engines, key=key)
