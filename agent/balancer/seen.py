"""What one look says of the engines that a load balancer may send to."""

from __future__ import annotations

from typing import NamedTuple

from agent.signals.types import EngineSignals
from agent.state import AgentState, Judgement


class Seen(NamedTuple):
    """``host``: also its pod's name; ``present``: it is heard of now."""

    signals: EngineSignals | None = None
    instance: str = ""
    host: str = ""

    @property
    def present(self) -> bool:
        """Whether it is heard of now."""
        return bool(self.instance)


def seen_in(state: AgentState, judgement: Judgement | None) -> dict[str, Seen]:
    """Return the engines, by label. Of one that is silent nothing is taken: what is known of it is of before."""
    seen = {
        engine.engine: Seen(instance=engine.instance if engine.phase == "live" else "", host=engine.host)
        for engine in state.engines
    }
    hooked = frozenset(seen)
    for signals in judgement.signals.engines if judgement is not None else ():
        name = signals.engine
        if signals.hooked and name in hooked and seen[name].present:
            seen[name] = seen[name]._replace(signals=signals)
        elif not signals.hooked and name not in hooked:  # its page says less than its hooks did
            seen[name] = Seen(signals=signals, instance=signals.instance)
    return seen
