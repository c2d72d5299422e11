"""The replay of a bundle for terminals, readable in 80 columns."""

from __future__ import annotations

import time

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from agent.faces.lines import BAD
from agent.plain import plain
from agent.replay.bundles import BundleReplay
from agent.replay.likeness import Likeness
from agent.replay.lives import Life
from agent.retained import count_of
from agent.units import human_seconds

_SHOWN = 300  # characters of what a file says of itself
_STYLES = {"page": f"bold {BAD}", "warn": "bold #e69f00", "note": "bold"}


def render(replay: BundleReplay) -> RenderableType:
    """Return what the bundle is, its verdicts in the order of their confirmation, and how far to believe it."""
    parts: list[RenderableType] = [Text(replay.file, style="bold"), Text(_about(replay), style="dim")]
    if replay.began is None or replay.ended is None:
        parts.append(Text("There is no state in it: nothing can be judged."))
    for life in replay.verdicts:
        parts += [Text(), _life(life, replay.ended or 0.0)]
    if replay.began is not None and not replay.verdicts:
        parts.append(Text("No verdict was confirmed.", style="#009e73"))
    parts.append(Text())
    parts += [Text(line, style="dim") for line in _remarks(replay)]
    return Group(*parts)


def _about(replay: BundleReplay) -> str:
    who = plain(f"{replay.why}, host {replay.host or 'not named'}, kvtide {replay.version}", _SHOWN)
    if replay.began is None or replay.ended is None:
        return who
    span = human_seconds(replay.ended - replay.began)
    return (
        f"{who}\n{count_of(replay.states, 'state')} over {span}, {_clock(replay.began)} to {_clock(replay.ended)}\n"
        f"policy: {replay.policy}"
    )


def _life(life: Life, end: float) -> RenderableType:
    head = Text(f"{life.tier:5}", style=_STYLES[life.tier])
    head.append(plain(f"{life.kind} {life.subject}", _SHOWN), style="bold")
    if life.resolved_at is not None:
        how = f"resolved {_clock(life.resolved_at)}{f' ({life.ending})' if life.ending else ''}"
    else:
        how = (
            f"not seen to end: {life.ending}" if life.ending else f"stands at the end ({_for(end - life.suspected_at)})"
        )
    times = f"suspected {_clock(life.suspected_at)}, confirmed {_clock(life.confirmed_at)}, {how}"
    body = Group(Text(times), Text(f"{life.sentence} {life.remedy}".strip()))
    return Group(head, Padding(body, (0, 0, 0, 5)))


def _remarks(replay: BundleReplay) -> list[str]:
    told = []
    if replay.passed:
        told.append(f"{count_of(replay.passed, 'suspicion')} went away by themselves.")
    if replay.left_out:
        told.append(f"{count_of(replay.left_out, 'more verdict')} are not shown.")
    if replay.agents > 1:
        told.append(f"{replay.agents} agents recorded it, one after the other; each judged anew.")
    if replay.live is not None:
        told += _against(replay.live)
    if replay.labelled:
        due = ", ".join(f"{label.kind} {label.subject}" for label in replay.labels)
        told.append(f"What is known to be wrong in it: {due or 'nothing'}.")
    if replay.passed_over:
        told.append(f"{count_of(replay.passed_over, 'state')} out of order were passed over.")
    if replay.errors:
        told.append(f"kvtide itself failed at {', '.join(sorted(replay.errors))}: please report this.")
    if replay.torn:
        told.append(f"The file is not whole: {replay.torn}. What comes before that is judged.")
    return told


def _against(live: Likeness) -> list[str]:
    if not live.only_live and not live.only_replay:
        same = f"As the live agent said: all {live.same:,} changes of verdicts are the same."
        told = [same if live.same else "The live agent had no change of a verdict either."]
    else:
        told = [f"{count_of(live.same, 'change')} of verdicts are as the live agent said."]
        told += [f"Only live: {'; '.join(live.only_live)}."] if live.only_live else []
        told += [f"Only here: {'; '.join(live.only_replay)}."] if live.only_replay else []
    if live.left_out:
        told.append(f"{count_of(live.left_out, 'more change')} are not compared.")
    if live.before:
        told.append(f"{count_of(live.before, 'verdict')} stood before the recording began; they are not compared.")
    return told


def _clock(unix: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix))
    except (OverflowError, ValueError, OSError):  # a verdict's own times may be anything
        return f"{unix:g} s"


def _for(seconds: float) -> str:
    return f"for {human_seconds(seconds)}"
