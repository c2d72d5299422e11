"""What a report says first, and last: what happened in three sentences, and what to do next."""

from __future__ import annotations

import time
from collections.abc import Iterator

from agent.replay.lives import Life
from agent.report.incident import Incident
from agent.retained import count_of
from agent.units import human_bytes, human_seconds

NOT_TOLD = "Whether anything was done is not recorded."
URGENCY = {"page": 0, "warn": 1, "note": 2}
_HARM = {
    "refused": ("time when memory was refused", "times when memory was refused"),
    "preempted": ("time of preemptions", "times of preemptions"),
    "stalled": ("stall", "stalls"),
    "oom": ("failed allocation", "failed allocations"),
    "killed": ("kill by the kernel", "kills by the kernel"),
}


def harm_counted(what: str, count: int) -> str:
    """Return what ``count`` stretches of one sort of harm are called."""
    one, many = _HARM.get(what, (what, what))
    return one if count == 1 else many


def clock(at: float, form: str = "%H:%M:%S") -> str:
    """Return a moment in UTC; the number where it is in no calendar."""
    try:
        return time.strftime(form, time.gmtime(at))
    except (OverflowError, ValueError, OSError):
        return f"{at:g} s"


def number(name: str, value: float) -> str:
    """Return a value for people, by the unit that its name ends in."""
    if name.endswith("_bytes"):
        return human_bytes(value)
    if name.endswith("_seconds"):
        return human_seconds(value)
    return f"{value:.1%}" if name.endswith("_ratio") else f"{value:,.4g}"


def span(incident: Incident) -> str:
    """Return when the recording was, and how long."""
    replay = incident.replay
    if replay.began is None or replay.ended is None:
        return "no state in it"
    length = human_seconds(replay.ended - replay.began)
    return f"{clock(replay.began, '%Y-%m-%d %H:%M:%S')} to {clock(replay.ended, '%Y-%m-%d %H:%M:%S')} UTC ({length})"


def ordered(incident: Incident) -> list[Life]:
    """Return the verdicts, what was most urgent first, then by their time."""
    return sorted(incident.replay.verdicts, key=lambda each: (URGENCY[each.tier], each.confirmed_at))


def summary(incident: Incident) -> list[str]:
    """Return what happened, what it did, what was done, and how it ended: a sentence or two each."""
    if incident.replay.began is None:
        return ["There is no state in this recording: nothing can be said."]
    return [*_what(incident), _harm(incident), _done(incident), _end(incident)]


def _what(incident: Incident) -> Iterator[str]:
    loud = [each for each in ordered(incident) if each.tier != "note"]
    if not loud:
        notes = len(incident.replay.verdicts)
        yield "Nothing was wrong that anybody had to know of." + (f" {count_of(notes, 'note')} below." if notes else "")
        return
    first = min(loud, key=lambda each: (URGENCY[each.tier], each.confirmed_at))
    yield f"Since {clock(first.confirmed_at)} UTC: {first.sentence}"
    kinds = sorted({each.kind for each in loud} - {first.kind})
    pages = sum(each.tier == "page" for each in loud)
    counts = ((pages, "page"), (len(loud) - pages, "warning"))
    told = f"{' and '.join(count_of(count, name) for count, name in counts if count)} in all"
    besides = f"; besides {first.kind}: {', '.join(kinds)}" if kinds else ""
    yield f"{told}{besides}."


def _harm(incident: Incident) -> str:
    if not incident.harm:
        return "No request was refused, preempted or lost for want of memory."
    parts = [f"{count:,} {harm_counted(what, count)}" for what, count in incident.harm.items()]
    text = f"Harm: {', '.join(parts)}"
    loud = [each.confirmed_at for each in incident.replay.verdicts if each.tier != "note"]
    harm = incident.first_harm
    if harm is None:
        return f"{text}."
    text += f", the first at {clock(harm.at)}"
    if not loud:
        return f"{text}; no verdict came of it."
    lead = harm.at - min(loud)
    if lead >= 0:
        return f"{text}; the first verdict came {human_seconds(lead)} before it."
    return f"{text}; the first verdict came {human_seconds(-lead)} after it."


def _done(incident: Incident) -> str:
    done = [each for each in incident.actions if each.phase not in ("refused", "would", "intent", "sent")]
    would = sum(each.phase == "would" for each in incident.actions)
    if done:
        helped = sum(each.verified == "helped" for each in done)
        did_not = sum(each.verified == "did_not" for each in done)
        return f"kvtide or a person acted {_times(len(done))}: {helped} helped, {did_not} did not."
    if would:
        return f"Nothing was done; as a dry-run {count_of(would, 'action')} would have been."
    if incident.modes and set(incident.modes) <= {"observe"}:
        return "Nothing was done: kvtide only observed (actions.mode)."
    return "Nothing was done." if incident.modes else NOT_TOLD


def _end(incident: Incident) -> str:
    standing = [each for each in ordered(incident) if each.tier != "note" and each.resolved_at is None]
    if standing:
        kinds = ", ".join(dict.fromkeys(f"{each.kind} on {each.subject}" for each in standing))
        return f"At the end of the recording it was not over: {kinds}."
    if any(each.tier != "note" for each in incident.replay.verdicts):
        return "All of it was over at the end of the recording."
    return "At the end of the recording all was well."


def following(incident: Incident) -> list[str]:
    """Return what to do next, the most urgent first."""
    steps = [
        f"{each.kind} on {each.subject}: {each.remedy}"
        for each in ordered(incident)
        if each.resolved_at is None and each.tier != "note" and each.remedy
    ]
    if incident.breaker:
        steps.append(f"The breaker is open ({incident.breaker}). Find out why, then: kvtide actions close-breaker")
    steps += [
        f"{each.plan.lever} on {each.plan.subject} did not help ({each.id}): kvtide actions explain {each.id}"
        for each in incident.actions
        if each.verified == "did_not"
    ]
    past = [each for each in ordered(incident) if each.resolved_at is not None and each.tier == "page"]
    for kind in dict.fromkeys(each.kind for each in past):
        steps.append(f"{kind} is over; so that it does not come back, see docs/runbooks/{kind}.md")
    return list(dict.fromkeys(steps))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
