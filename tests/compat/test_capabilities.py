"""What this version has and lacks, as the probes say; goes on the page."""

from __future__ import annotations

from vllm.sampling_params import SamplingParams
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.request import Request

from tests.bed.scheduler import make_scheduler
from tests.compat.build import Watched, make_engine
from tests.compat.capabilities import CAPABILITIES, Subject


def test_each_probe_answers_and_what_the_hooks_stand_on_is_there(capabilities: dict[str, dict[str, object]]) -> None:
    subject = Subject(
        accounts=Watched(make_scheduler(200)).accounts,
        hybrid=Watched(make_scheduler(200, sliding_window=64)).accounts,
        engine=make_engine(),
        process=EngineCoreProc,
        request=Request,
        sampling=SamplingParams,
    )
    for capability in CAPABILITIES:
        support = capability.probe(subject)
        assert support.ok == (not support.reason), capability.name
        capabilities[capability.name] = {"ok": support.ok, "reason": support.reason}
    for name in ("exact accounting", "reports from the busy loop", "orders, idle engines' reports"):
        assert capabilities[name] == {"ok": True, "reason": ""}


def test_a_probe_says_what_is_missing() -> None:
    class Process:
        """An engine process without anything."""

    by_name = {capability.name: capability for capability in CAPABILITIES}
    accounts = Watched(make_scheduler(200)).accounts
    bare = Subject(accounts, accounts, Process(), Process, Process, Process)
    assert by_name["lever: abort, client told"].probe(bare).reason == "Process has no _send_abort_outputs"
    assert by_name["a request's session"].probe(bare).reason == "Process takes no session_id"
    assert not by_name["engine in its caller's process"].probe(bare).ok
