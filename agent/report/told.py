"""An incident as a document."""

from __future__ import annotations

from collections.abc import Iterator

from agent.actions.types import Action
from agent.faces.effect import came_of
from agent.plain import plain
from agent.replay.lives import Life
from agent.report.document import Block, Box, Document, Heading, Items, Lead, Picture, Quiet, Table
from agent.report.events import events
from agent.report.incident import Incident
from agent.report.lines import line
from agent.report.memory import changes
from agent.report.owners import said
from agent.report.pictures import engine_picture, gpu_picture
from agent.report.track import Track
from agent.report.words import NOT_TOLD, clock, following, number, ordered, span, summary
from agent.units import human_bytes

MOST_PICTURES = 16
MOST_OWNERS = 20
_GIB = 1 << 30


def document(incident: Incident) -> Document:
    """Return the report of one recording: what everybody has to know first."""
    replay = incident.replay
    about = f"{span(incident)}; recorded because: {replay.why}; kvtide {replay.version}, policy {replay.policy}"
    blocks: list[Block] = [
        Quiet(about),
        Lead(summary(incident)),
        Heading("What to do next"),
        Items(following(incident), "Nothing is left to be done.", numbered=True),
        Heading("Verdicts"),
        *(map(_verdict, ordered(incident)) if replay.verdicts else [Quiet("None was confirmed.")]),
        Heading("Pictures"),
        *(list(_pictures(incident)) or [Quiet("There is no series to draw.")]),
        Heading("Who, and since when"),
        *_owners(incident),
        Heading("What was done, and what it changed"),
        _actions(incident),
        Heading("What grew on each GPU"),
        *(list(_memory(incident)) or [Quiet("No GPU is in this recording.")]),
        Heading("In its order"),
        Table(("UTC", "what"), [(clock(each.at), each.text) for each in events(incident)], none="Nothing happened."),
        Heading("How far to believe it"),
        Items(list(_remarks(incident))),
    ]
    return Document(f"Memory incident on {replay.host or 'a node that is not named'}", blocks)


def _verdict(life: Life) -> Box:
    until = f"until {clock(life.resolved_at)}" if life.resolved_at is not None else life.ending or "not over at the end"
    evidence = ", ".join(f"{name.replace('_', ' ')} {number(name, value)}" for name, value in life.evidence.items())
    small = f"suspected {clock(life.suspected_at)}, confirmed {clock(life.confirmed_at)}, {until}"
    text = f"{life.sentence} {life.remedy}".strip()
    return Box(life.tier, f"{life.kind} on {life.subject}", text, f"{small}; {evidence}" if evidence else small)


def _pictures(incident: Incident) -> Iterator[Block]:
    lives = ordered(incident)
    ill = {each.subject.engine for each in lives}
    drawn = 0
    for name in sorted(incident.engines, key=lambda name: (name not in ill, name)):
        track = incident.engines[name]
        own = [each for each in lives if each.subject.engine == name]
        done = [each for each in incident.actions if each.plan.subject.engine == name and each.phase != "refused"]
        if drawn < MOST_PICTURES and (drawing := engine_picture(track, own, done)):
            drawn += 1
            yield from (Heading(f"Engine {name}", small=True), Picture(drawing, list(_lines(track))))
    for name, track in incident.gpus.items():
        if drawn < MOST_PICTURES and (drawing := gpu_picture(track)):
            drawn += 1
            most = track.most("total") or 0.0
            text = line(track, "used", most, f"of {most / _GIB:,.1f} GiB")
            yield from (Heading(f"GPU {name}", small=True), Picture(drawing, [text]))


def _lines(track: Track) -> Iterator[str]:
    capacity = track.most("capacity")
    if capacity:
        yield line(track, "held", capacity, f"of {capacity:,.0f} blocks")
        yield line(track, "orphaned", capacity, f"of {capacity:,.0f} blocks")
    else:
        yield line(track, "use", 1.0, "of the pool")
    if track.known("score"):
        yield line(track, "score", 100.0, "of 100", name="health")


def _owners(incident: Incident) -> Iterator[Block]:
    owned = incident.owners.owned()
    rows = [f"{clock(each.since)} to {clock(each.until)}: {said(each)}" for each in owned[:MOST_OWNERS]]
    if len(owned) > MOST_OWNERS:
        rows.append(f"and {len(owned) - MOST_OWNERS} more")
    yield Items(rows, "No block stayed behind that a request should have given back.")
    if shares := incident.owners.shares()[:MOST_OWNERS]:
        yield Table(
            ("tenant", "engine", "most blocks held", "when", "quota"),
            [
                (each.tenant, each.engine, f"{each.blocks:,.0f}", clock(each.at), _count(each.quota))
                for each in shares
            ],
            numbers=(2, 3, 4),
        )  # fmt: skip


def _actions(incident: Incident) -> Table:
    return Table(
        ("", "when", "who", "lever", "on", "why", "how it went", "what changed"),
        [_action(place, action) for place, action in enumerate(incident.actions, 1)],
        numbers=(0,),
        none="Nothing was done." if incident.modes else NOT_TOLD,
    )


def _action(place: int, action: Action) -> tuple[str, ...]:
    plan = action.plan
    change = ""
    if plan.expected is not None and action.before is not None and action.after is not None:
        change = f"{plan.expected.signal.replace('_', ' ')} {action.before:.4g} to {action.after:.4g}"
    came = ", ".join(part for part in (action.phase.replace("_", " "), came_of(action), action.reason) if part)
    who = "kvtide" if action.by == "agent" else action.by
    return str(place), clock(action.at), who, plan.lever, str(plan.subject), plan.sentence, came, change


def _memory(incident: Incident) -> Iterator[Block]:
    for gpu, last in incident.last.items():
        rows = [
            (each.part, each.owner, _bytes(each.first), _bytes(each.last), each.said())
            for each in changes(incident.first[gpu], last)
        ]
        yield Heading(f"GPU {gpu}", small=True)
        yield Table(("part", "owner", "at first", "at the end", "change"), rows, numbers=(2, 3, 4))


def _remarks(incident: Incident) -> Iterator[str]:
    replay = incident.replay
    yield f"{replay.states:,} states were judged anew by the policy that is named above."
    if replay.torn:
        yield f"The file is not whole: {replay.torn}. What comes before that is in here."
    if replay.agents > 1:
        yield f"{replay.agents} agents recorded it, one after the other."
    if replay.live is not None and (replay.live.only_live or replay.live.only_replay):
        yield "The live agent did not say all the same: see kvtide replay."
    if incident.more:
        yield f"{incident.more} more engines or GPUs are not shown."
    if incident.owners.left_out:
        yield "More owners were seen than are kept."
    if replay.errors:
        yield f"kvtide itself failed at {plain(', '.join(sorted(replay.errors)))}: please report this."


def _count(blocks: int | None) -> str:
    return "-" if blocks is None else f"{blocks:,}"


def _bytes(size: int | None) -> str:
    return "-" if size is None else human_bytes(size)
