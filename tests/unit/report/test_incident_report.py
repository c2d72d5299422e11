"""The report of a recording says what happened, to whom, what was done, and what to do next; nothing in it can harm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agent.actions.types import ActionsState
from agent.report import html, markdown, words
from agent.report.incident import Incident, gather
from agent.report.told import document
from agent.state import AgentState
from engine_hooks.detail import Detail
from tests.unit.builders import make_action, make_pool
from tests.unit.details import make_leak, make_tenant
from tests.unit.node_builders import make_devices, make_waterfall
from tests.unit.recordings import AT, moment, sound_engine, written

SECONDS, SINCE, UNTIL = 240, 90, 180
EVIL_NAME = "<script>alert(1)</script>$x_1$"  # the link lets names have no more
EVIL = f"{EVIL_NAME}\x1b[31m"


def leak(second: int, tenant: str = "acme", **changes: object) -> AgentState:
    """A state of a node where four blocks of ``tenant`` are leaked from ``SINCE`` on, before ``UNTIL``."""
    leaked = SINCE <= second < UNTIL
    rows = (make_leak(tenant=tenant, age_seconds=float(second - SINCE)),) if leaked else ()
    detail = Detail(monotonic=50.0, leaks=rows, tenants=(make_tenant(tenant=tenant, held=200.0, preempted_total=0),))
    pool = make_pool(orphaned=4 if leaked else 0, over_freed=0)
    return moment(second, sound_engine(pool=pool, detail=detail, running=0, waiting=0), **changes)


def leaks(tenant: str = "acme", **changes: object) -> Iterator[AgentState]:
    return (leak(second, tenant, **changes) for second in range(SECONDS))


def text_of(incident: Incident) -> str:
    return markdown.render(document(incident))


@pytest.fixture
def incident(tmp_path: Path) -> Incident:
    done = make_action(at=AT + 100, changed=AT + 110)
    asked = make_action(id="d1", phase="undone", verified="did_not", at=AT + 120, changed=AT + 150, by="mary")
    actions = ActionsState(mode="enforce", recent=(asked, done))
    return gather(written(tmp_path / "a.kvtide", leaks(actions=actions), host="gpu1"))


def test_the_course_says_what_was_known_at_each_time(incident: Incident) -> None:
    (life,) = [life for life in incident.replay.verdicts if life.tier != "note"]
    assert life.first_sentence != life.sentence
    *_, course = text_of(incident).partition("## In its order")
    assert life.first_sentence in course
    assert life.sentence not in course


def test_says_what_happened_and_that_it_is_over(incident: Incident) -> None:
    lead = words.summary(incident)
    assert lead[0].startswith("Since 22:14:5")
    assert "4 KV blocks are held by no request" in lead[0]
    assert lead[-1] == "All of it was over at the end of the recording."
    assert [life.kind for life in incident.replay.verdicts if life.tier != "note"] == ["kv_orphan"]


def test_says_whose_it_was_and_since_when(incident: Incident) -> None:
    (owned,) = incident.owners.owned()
    assert (owned.tenant, owned.most, owned.last) == ("acme", 4, 0)
    assert owned.since == AT + SINCE
    assert owned.until == AT + UNTIL - 1
    assert "4 blocks of tenant acme leaked on m (aborted at the front end), all given back" in text_of(incident)
    assert [(each.tenant, each.blocks) for each in incident.owners.shares()] == [("acme", 200.0)]


def test_says_what_was_done_by_whom_and_what_did_not_help(incident: Incident) -> None:
    assert [action.id for action in incident.actions] == ["a1b2c3", "d1"]
    text = text_of(incident)
    assert "| kvtide | watermark | m | The KV pool is short. | in force, helped | use ratio 0.97 to 0.94 |" in text
    assert "| mary | watermark |" in text
    assert "kvtide or a person acted 2 times: 1 helped, 1 did not." in text
    assert "watermark on m did not help (d1): kvtide actions explain d1" in text


def test_a_quiet_recording_says_so(tmp_path: Path) -> None:
    incident = gather(written(tmp_path / "a.kvtide", (moment(second, actions=None) for second in range(120))))
    lead = words.summary(incident)
    assert lead[0].startswith("Nothing was wrong that anybody had to know of.")
    assert "No request was refused, preempted or lost for want of memory." in lead
    assert lead[-1] == "At the end of the recording all was well."
    assert words.following(incident) == []
    assert words.NOT_TOLD in lead


def test_observing_is_told_apart_from_nothing_recorded(tmp_path: Path) -> None:
    incident = gather(written(tmp_path / "a.kvtide", leaks(actions=ActionsState())))
    assert "Nothing was done: kvtide only observed (actions.mode)." in words.summary(incident)


def test_what_stands_at_the_end_is_said_to_stand_and_to_be_done(tmp_path: Path) -> None:
    incident = gather(written(tmp_path / "a.kvtide", (leak(second) for second in range(UNTIL - 10))))
    assert words.summary(incident)[-1] == "At the end of the recording it was not over: kv_orphan on m."
    assert words.following(incident)[0].startswith("kv_orphan on m: Leaked blocks come back")


def test_an_empty_recording_is_no_fault(tmp_path: Path) -> None:
    incident = gather(written(tmp_path / "a.kvtide", iter(())))
    assert words.summary(incident) == ["There is no state in this recording: nothing can be said."]
    assert "no state in it" in text_of(incident)
    assert html.render(document(incident)).endswith("</html>\n")


def test_gpus_show_what_grew(tmp_path: Path) -> None:
    states = (moment(n, device=make_devices(), waterfalls=(make_waterfall(),)) for n in range(30))
    incident = gather(written(tmp_path / "a.kvtide", states))
    assert set(incident.gpus) == {each.gpu for each in make_devices().gpus if each.memory is not None}
    assert incident.gpus["0"].known("used")
    assert f"### GPU {make_waterfall().gpu}" in text_of(incident)


def test_the_page_needs_nothing_from_outside_and_runs_nothing(tmp_path: Path) -> None:
    done = make_action(at=AT + 100, by=EVIL, reason=EVIL)
    incident = gather(
        written(tmp_path / "a.kvtide", leaks(EVIL_NAME, actions=ActionsState(recent=(done,))), host=EVIL, why=EVIL)
    )
    page = html.render(document(incident))
    assert "<script" not in page
    assert "\x1b" not in page
    assert "default-src 'none'" in page
    links = set(re.findall(r"(?:href|src|url)\s*[=(]\s*[\"']?([^\"')\s>]+)", page))
    assert all(link.startswith("#") for link in links), links
    assert "&lt;script&gt;alert(1)" in page
    text = markdown.render(document(incident))
    assert "\x1b" not in text
    assert "\\<script\\>" in text


def test_pictures_are_drawings_with_words_that_can_be_read_aloud(incident: Incident) -> None:
    page = html.render(document(incident))
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) == 1
    ElementTree.fromstring(drawings[0])  # noqa: S314 - our own
    for word in ("leaked", "cached idle", "capacity", "kv_orphan", "waiting requests", "KV blocks"):
        assert f">{word}" in drawings[0], word
