"""engine_missing: an engine that was here and is no more, that says nothing, or that has lost processes of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.plain import plain
from agent.retained import count_of
from agent.state import EngineState, Tier
from agent.subject import Subject
from agent.units import human_seconds
from agent.verdicts.base import Finding, Gone, View
from engine_hooks.members import WORKER

# Times the policy's seconds, where nothing says that it failed: a restart loads weights for one to three minutes; and
# where workers or API servers without an engine are here, of which it may be one that starts.
RESTART_TIMES, STARTS_TIMES = 3.0, 10.0
SILENT_PAGE_SECONDS = 120.0
SILENT_SECONDS = 30.0
WHY_SECONDS = 300.0  # what failed so shortly before it went may be why

REMEDY_CRASHED = "Start it again, and read the end of its log first: what ended it may do so again."
REMEDY_STOPPED = "If somebody stopped it, nothing; otherwise start it again and read the end of its log."
REMEDY_SILENT = "See what its process does (py-spy dump, the log). If it does not come back, drain it and restart it."
REMEDY_MEMBER = "See whether that process lives; a worker that died takes the engine with it at the next step."


class EngineMissing:
    """Fires on an engine that went and has no successor, on one that is silent, on workers and API servers that went.

    A stop that left nothing undone is a note at most, and so is a restart as long as one can take. What never reported
    is not missed.
    """

    kind = "engine_missing"
    confirm_seconds = 10.0
    clear_seconds = 0.0
    of_absence = True

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield what is missing; each engine once, a whole one before its parts."""
        found: dict[str, Finding] = {}
        for name, finding in (*_gone(view), *_silent(view), *_members(view)):
            found.setdefault(name, finding)
        for name, finding in found.items():
            yield Subject(scope="engine", engine=name), finding


def _gone(view: View) -> Iterator[tuple[str, Finding]]:
    for one in view.gone:
        if one.role or one.silent or one.seconds < view.policy.host.gone_seconds:
            continue
        evidence = {"gone_seconds": one.seconds}
        work = (one.running or 0) + (one.waiting or 0)
        why = _why(view, one)
        how = "has gone" if one.hooked else "does not answer any more"
        sentence = f"Engine {plain(one.engine)} {how}: for {human_seconds(one.seconds)} nothing has come in its place."
        if work:
            evidence["requests_then"] = work
            sentence += f" It had {count_of(work, 'request')} then."
        starts = one.hooked and view.state.unjoined_members > 0
        late = one.seconds >= (STARTS_TIMES if starts else RESTART_TIMES) * view.policy.host.gone_seconds
        tier: Tier = "page" if why else "warn" if work and late else "note"
        remedy = REMEDY_CRASHED if why else REMEDY_STOPPED
        yield one.engine, Finding(sentence + why, remedy, evidence, tier)


def _silent(view: View) -> Iterator[tuple[str, Finding]]:
    since = {one.engine: one.seconds for one in view.gone if one.silent}
    for engine in view.state.engines:
        # By its own last report, or by ours: what is recorded each 30 s has no finer age.
        watched = since.get(engine.engine, 0.0)
        age = max(engine.report_age_seconds or 0.0, watched)
        if engine.phase != "silent" or age < SILENT_SECONDS or _starts(engine, view):
            continue
        sentence = f"Engine {plain(engine.engine)} has said nothing for {human_seconds(age)}: {plain(engine.reason)}."
        long = age >= SILENT_PAGE_SECONDS
        tier: Tier = "page" if long else "warn"
        # A silence that is so long has held for long enough, but where it was we who did not listen.
        at_once = 0.0 if long and watched >= SILENT_SECONDS else None
        yield engine.engine, Finding(sentence, REMEDY_SILENT, {"silent_seconds": age}, tier, at_once)


def _members(view: View) -> Iterator[tuple[str, Finding]]:
    for one in view.gone:
        if not one.role or one.expected is None:
            continue
        what = "worker" if one.role == WORKER else "API server"
        lost = one.expected - one.up
        sentence = (
            f"{count_of(lost, what)} of engine {plain(one.engine)} {'has' if lost == 1 else 'have'} gone silent: "
        )
        sentence += f"{one.up} of {one.expected} report."
        evidence: dict[str, float] = {"up": one.up, "expected": one.expected}
        yield one.engine, Finding(sentence, REMEDY_MEMBER, evidence, "warn", 30.0)


def _starts(engine: EngineState, view: View) -> bool:
    return view.state.at - engine.started_at < view.policy.growth.grace_seconds


def _why(view: View, one: Gone) -> str:
    """Return what ended it, led by a space; empty where nothing is known to have."""
    since = view.state.at - one.seconds - WHY_SECONDS
    for killed in view.killed:
        if killed.engine == one.engine and killed.at >= since:
            return f" The kernel killed its {killed.role} for want of memory."
    for failure in view.state.failures:
        if failure.engine == one.engine and failure.event.at >= since:
            kind = failure.event.kind.replace("_", " ")
            return (
                f" {failure.judgement.sentence}" if failure.judgement else f" Its last word was of a failure: {kind}."
            )
    return ""
