"""sensor_stale: what a number would be made of doesn't come, or comes and is of long ago.

Not a fault of the engine, but nobody may read the last number as the present one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.plain import plain
from agent.retained import count_of
from agent.sources.base import SourceState
from agent.state import AgentState, EngineState
from agent.subject import Subject
from agent.units import human_seconds
from agent.verdicts.base import Finding, View
from agent.verdicts.who import worst

CONFIRM_SECONDS = 60.0
START_SECONDS = 600.0  # an engine that starts is silent while it loads and compiles
_LOST = {
    "device": "use, growth and loss of GPUs, other processes' memory",
    "host": "host memory, limits, kills, memory of dead processes",
    "scrape": "engines without hooks",
    "driver_calls": "the time that the driver takes to give memory",
}
REMEDY_SOURCE = "See `kvtide status` and the agent's log for the reason; other verdicts go on without it."
REMEDY_FROZEN = (
    "Send the engine one short request: if it answers, its numbers move again and nothing was wrong; if not, it hangs "
    "and must be restarted. Evict and preempt nothing on these numbers."
)
REMEDY_PAGE = (
    "Ask the engine's /metrics by hand: an empty page comes of PROMETHEUS_MULTIPROC_DIR or of a proxy in between."
)
REMEDY_SILENT = "See whether its process gets CPU or hangs in a call (py-spy dump); what is shown of it is of before."


class SensorStale:
    """Fires on sources that fail, and on pages that say nothing new or nothing at all; notes silent hooks."""

    kind = "sensor_stale"
    confirm_seconds = CONFIRM_SECONDS
    clear_seconds = 10.0
    of_absence = True

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the sources and engines of which nothing new is known."""
        return worst(_all(view.state))


def _all(state: AgentState) -> Iterator[tuple[Subject, Finding]]:
    for source in state.sources:
        if not source.up and not source.absent and (source.reads or source.failures):
            yield Subject(scope="source", source=source.source), _failing(source)
    silent = {engine.engine for engine in state.engines if engine.phase == "silent"}
    for page in state.scrape.engines if state.scrape is not None else ():
        if page.engine in silent:
            continue
        subject = Subject(scope="engine", engine=page.engine)
        if page.phase == "stale":
            said = page.reason or "nothing on its page has changed"
            yield (
                subject,
                Finding(f"{_upper(plain(said, 400))}.", REMEDY_FROZEN, _age(page.page_age_seconds), tier="warn"),
            )
        elif page.phase == "bad_page":
            why = plain(page.reason, 200)
            text = f"The page of engine {plain(page.engine)} can't be read: {why}. Nothing is known of it."
            yield subject, Finding(text, REMEDY_PAGE, _age(page.page_age_seconds), tier="warn")
    for engine in state.engines:
        finding = _silent(engine, state.at) if engine.phase == "silent" else _off(engine)
        if finding is not None:
            yield Subject(scope="engine", engine=engine.engine), finding


def _failing(source: SourceState) -> Finding:
    what = _LOST.get(source.source, "what it reads")
    evidence: dict[str, float] = {"failures": source.failures}
    return Finding(
        f"The agent's source {plain(source.source, 40)} can't be read: {plain(source.reason, 200)}. Not known "
        f"meanwhile: {what}.",
        REMEDY_SOURCE,
        evidence,
        tier="warn",
    )


def _silent(engine: EngineState, now: float) -> Finding | None:
    """A note: engine_missing tells people of an engine that is there and says nothing."""
    if now - engine.started_at < START_SECONDS:
        return None
    age = engine.report_age_seconds
    since = "" if age is None else f" for {human_seconds(age)}"
    why = f": {plain(engine.reason, 200)}" if engine.reason else ""
    text = f"The hooks in engine {engine.engine} have said nothing{since}{why}. What its pool holds is not known."
    return Finding(text, REMEDY_SILENT, _age(age), tier="note")


def _off(engine: EngineState) -> Finding | None:
    off = dict(engine.hooks.off) if engine.hooks is not None else {}
    for member in engine.members:
        off |= {f"{member.role}/{member.rank} {name}": why for name, why in member.hooks_off.items()}
    if not off:
        return None
    name, why = next(iter(sorted(off.items())))
    return Finding(
        f"{count_of(len(off), 'hook')} in engine {engine.engine} {'is' if len(off) == 1 else 'are'} switched off after "
        f"errors ({plain(name, 40)}: {plain(why, 120)}): what it counted is not known. The engine goes on as it was.",
        "Report the error to kvtide; the hook comes back when the engine restarts.",
        {"hooks_off": len(off)},
        tier="note",
    )


def _age(seconds: float | None) -> dict[str, float]:
    return {} if seconds is None else {"age_seconds": seconds}


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".")
