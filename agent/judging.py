"""The judge of the live agent: a detector that fails costs its own verdicts, never the agent."""

from __future__ import annotations

import logging
from collections import Counter

from agent.bundle.header import Usuals
from agent.judge import Judge
from agent.policy.types import Policy
from agent.state import AgentState, Judgement

logger = logging.getLogger("kvtide.agent")


class LiveJudge:
    """See :class:`agent.judge.Judge`. ``errors``: how often what has failed, by its name.

    ``usuals``: what an agent before this one had learned.
    """

    def __init__(self, policy: Policy, usuals: Usuals | None) -> None:
        self.policy = policy
        self.errors: Counter[str] = Counter()
        self._judge = Judge(
            policy, usuals.baselines if usuals else None, self.failed, tracks=usuals.tracks if usuals else None
        )

    def adopt(self, policy: Policy) -> None:
        """Judge by another policy from now on; verdicts that stand go on standing."""
        self.policy = policy
        self._judge.adopt(policy)

    def look(self, state: AgentState) -> Judgement:
        """Return what is made of ``state``; an empty judgement where that is not possible."""
        try:
            return self._judge.look(state)
        except Exception as error:
            self.failed("node", error)
            return Judgement(at=state.at)

    def usuals(self) -> Usuals:
        """Return what has been learned, and what slow estimates rest on."""
        return Usuals(baselines=self._judge.baselines(), tracks=self._judge.tracks())

    def failed(self, name: str, error: Exception) -> None:
        """Count a failure by what has failed, and log the first of each."""
        self.errors[name] += 1
        if self.errors[name] == 1:
            logger.error("%s can't be judged: please report this", name, exc_info=error)
