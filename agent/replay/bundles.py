"""From a bundle to what a policy says of it, and whether that is what the live agent said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pydantic

from agent.bundle.format import Bundle, Label, read
from agent.episodes import Episodes
from agent.policy.types import DEFAULT, Policy
from agent.recorder.triggers import Triggers
from agent.replay.fold import Fold
from agent.replay.likeness import Comparison, Likeness
from agent.replay.lives import Life, life_of
from agent.state import AgentState, Judgement

OWN_STEP_SECONDS = 5.0  # states that are further apart were not judged one after the other live
AGENT_ENDED = "the agent ended"
POLICY_OF_BUNDLE, POLICY_UNREADABLE = "the bundle's", "default: the bundle's can't be read"


class BundleReplay(msgspec.Struct, frozen=True, kw_only=True):
    """What ``policy`` says of one bundle. ``began`` and ``ended`` are Unix seconds, None without any state.

    ``agents``: how many recorded, one after the other. ``passed``: suspicions that went away. ``live``: against what
    the live agent said, None where nothing of that is in it or another policy judges now. ``torn``: why the end is
    missing, or empty. ``errors``: how often what of judging has failed, by name. ``labels``: the truth, where it is
    known: their times are on the states' monotonic clock.
    """

    file: str
    why: str
    host: str
    version: str
    policy: str
    states: int
    began: float | None
    ended: float | None
    agents: int
    passed_over: int
    verdicts: tuple[Life, ...]
    left_out: int
    passed: int
    live: Likeness | None
    torn: str
    errors: dict[str, int]
    labelled: bool
    labels: tuple[Label, ...]


def replay_bundle(
    path: Path,
    policy: Policy | None = None,
    named: str = "",
    *,
    watch: Callable[[AgentState, Judgement], None] = lambda *_: None,
) -> BundleReplay:
    """Return what ``policy`` says of the bundle at ``path``; without one, the policy of the agent that made it.

    ``named``: what the user calls the policy. ``watch`` is given each state with what was made of it. Raises
    :class:`agent.bundle.errors.BundleError`.
    """
    bundle = read(path)
    chosen, name = (policy, named) if policy is not None else _own(bundle)
    fold, episodes, triggers, comparison = Fold(chosen), Episodes(), Triggers(), Comparison()
    states, agents, last = 0, 0, 0.0
    began = ended = None
    for state, judgement in fold.judgements(bundle.records()):
        comparison.said(fold.said())
        own = fold.lives == agents and state.monotonic - last <= OWN_STEP_SECONDS
        if fold.lives != agents:
            episodes.end(None, AGENT_ENDED)
            triggers, agents = Triggers(), fold.lives
        comparison.state(agents, state.monotonic, own=own)
        last = state.monotonic
        states += 1
        began, ended = state.at if began is None else began, state.at
        episodes.take(judgement.verdicts, state.at, state.at - judgement.at)
        watch(state, judgement)
        comparison.replayed(triggers.changes(state, judgement))
    comparison.said(fold.said())
    told, passed = episodes.finish()
    header = bundle.header
    return BundleReplay(
        file=str(path),
        why=header.why,
        host=header.host,
        version=header.version,
        policy=name,
        states=states,
        began=began,
        ended=ended,
        agents=agents,
        passed_over=fold.passed_over,
        verdicts=tuple(map(life_of, told)),
        left_out=episodes.left_out,
        passed=sum(each.count for each in passed),
        live=comparison.likeness() if header.policy and policy is None else None,
        torn=bundle.torn,
        errors=dict(fold.errors),
        labelled=header.labelled,
        labels=header.labels,
    )


def _own(bundle: Bundle) -> tuple[Policy, str]:
    told = bundle.header.policy
    if not told:
        return DEFAULT, "default"
    try:
        return Policy.model_validate_json(told), POLICY_OF_BUNDLE
    except pydantic.ValidationError:  # of a version with other thresholds
        return DEFAULT, POLICY_UNREADABLE
