"""spec_residue: what interrupted speculative drafts leave behind, or drafts that never come to an end."""

from __future__ import annotations

from agent.retained import count_of, there_are
from agent.units import human_bytes, human_seconds
from agent.verdicts.base import Facts, Finding
from agent.verdicts.harm import of_each_rank
from engine_hooks.members import WORKER

REMEDY_RESIDUE = "A restart brings them back; turning speculation off stops the loss."
REMEDY_STUCK = "Abort those requests; if more follow, turn speculation off."


class SpecResidue:
    """Fires when interrupted drafts hold more than the policy allows, or when a request is stuck drafting."""

    kind = "spec_residue"
    confirm_seconds = 3.0
    clear_seconds = 0.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return the residue or the stuck drafts; None when there are none, or without speculation."""
        row = facts.detail.speculation if facts.detail else None
        if row is None:
            return None
        residue = _held_now(row.residue_blocks_total, facts)
        size = facts.pool.bytes_of(residue) if facts.pool else None
        evidence: dict[str, float] = {"residue_blocks": residue, "interruptions": row.interruptions_total}
        policy = facts.policy.residue
        ranks = max(1, facts.engine.up(WORKER)) if residue and facts.engine is not None else 1
        here = 0 if size is None else size * ranks
        # What counts is what the node has lost; of each engine it is told what it has lost of that.
        node = max(here, facts.node_residue_bytes or 0)
        if residue > 0 and (size is None or node > policy.warn_bytes):
            if size is not None:
                evidence |= {"residue_bytes": size, "node_residue_bytes": node}
            amount = "" if size is None else f" ({human_bytes(size)}{of_each_rank(facts)})"
            more = f" On this node it is {human_bytes(node)} in all." if node > here else ""
            return Finding(
                sentence=f"{count_of(row.interruptions_total, 'interrupted draft')} left "
                f"{count_of(residue, 'KV block')}{amount} behind that nobody gives back.{more}",
                remedy=REMEDY_RESIDUE,
                evidence=evidence,
                tier="page" if size is not None and node > policy.page_bytes else "warn",
            )
        if row.stuck > 0:
            return Finding(
                sentence=f"{there_are(row.stuck, 'request')} stuck in one drafting state for more than "
                f"{human_seconds(row.stuck_after_seconds)}.",
                remedy=REMEDY_STUCK,
                evidence=evidence | {"stuck_requests": row.stuck},
                tier="warn",
            )
        return None


def _held_now(residue_total: int, facts: Facts) -> int:
    """The counter only grows; what has come back since is no longer orphaned, where that can be known."""
    orphaned = facts.pool.orphaned if facts.pool else None
    return residue_total if orphaned is None else min(residue_total, orphaned)
