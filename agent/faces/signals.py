"""What an engine's numbers mean over time, in lines: health, growth, forecast. Terminal and page share it: no rich."""

from __future__ import annotations

from collections.abc import Iterator

from agent.faces.lines import BAD, Line
from agent.signals.types import EngineSignals, Forecast, Rate, Score
from agent.state import AgentState
from agent.units import human_seconds

LEAST_GROWTH = 0.0005  # a minute: less reads as 0.0 %
_STYLES = {"emergency": BAD, "severe": BAD, "warning": "yellow"}
_SCOPES = {"kv": "KV pool", "device": "GPU", "host": "host"}


def lines(state: AgentState, engine: str, *, hooked: bool = True) -> Iterator[Line]:
    """Yield the lines on the engine with that label, what is known of it."""
    if state.judgement is None:
        return
    yield from _health([score for score in state.judgement.scores if score.engine == engine])
    for signals in state.judgement.signals.engines:
        if (signals.engine, signals.hooked) == (engine, hooked):
            yield from _growth(signals)


def _health(scores: list[Score]) -> Iterator[Line]:
    ours = {score.scope: score for score in scores if score.form == "kvtide"}
    whole = ours.get("engine")
    if whole is None:
        return
    parts = [f"{name} {ours[scope].value:.0f}" for scope, name in _SCOPES.items() if scope in ours]
    text = f"{whole.value:.0f} of 100" + (f" ({', '.join(parts)})" if len(parts) > 1 else "")
    if whole.tier == "emergency":
        text += ": act now"
    by_book = next((score.value for score in scores if score.form == "textbook" and score.scope == "engine"), None)
    if by_book is not None:
        text += f"; {by_book:.0f} by the textbook, which takes what is preallocated for lost"
    yield Line("health", text, _STYLES.get(whole.tier, ""))


def _growth(signals: EngineSignals) -> Iterator[Line]:
    parts = []
    if signals.growth is not None:
        parts.append(_rate(signals.growth))
        if signals.unexplained is not None and abs(signals.unexplained.per_minute) >= LEAST_GROWTH:
            parts.append(f"unexplained: {_rate(signals.unexplained)}")
    if signals.exhaustion is not None:
        parts.append(_forecast(signals.exhaustion))
    if parts:
        yield Line("growth", "; ".join(parts))


def _rate(rate: Rate) -> str:
    if abs(rate.per_minute) < LEAST_GROWTH:
        return "none to speak of"
    return f"{rate.per_minute:+.1%} of the pool a minute ({rate.low:+.1%} to {rate.high:+.1%})"


def _forecast(forecast: Forecast) -> str:
    latest = "never" if forecast.high is None else human_seconds(forecast.high)
    when = f"{human_seconds(forecast.seconds)} ({human_seconds(forecast.low)} to {latest})"
    return f"full in {when} {forecast.condition}".strip()
