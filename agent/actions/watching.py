"""Whether an action has helped, and the next step of taking one back. Pure."""

from __future__ import annotations

from agent.actions.measure import engine_of
from agent.actions.types import Action, Verified
from agent.policy.types import Policy
from agent.state import AgentState, EngineState
from engine_hooks.levers.orders import Argument

CAP_MARGIN = 1.25  # a cap that is so many times what runs holds nobody back
LEAST_WATERMARK = 0.01  # of the pool: less is not worth another step
CONCURRENCY = "concurrency"  # of these rules the one that is loosened step by step, once nobody is shed any more
# Rules of admission by the order in which they are taken off, those that belong together at once.
RULES = (
    ("shed",),
    (CONCURRENCY,),
    ("quotas", "reserved"),
    ("max_prompt", "batch_prompt", "prompt_limit", "pool_share", "short_first", "pressure"),
)


def is_measured(action: Action) -> bool:
    """Whether an action is done, and it is not known yet whether it has helped."""
    return action.verified == "not_yet" and action.phase in ("in_force", "done") and action.plan.expected is not None


def moved(action: Action, now: float | None) -> bool | None:
    """Whether the expected number has moved as it should; None where it can't be seen."""
    expected = action.plan.expected
    if expected is None or action.before is None or now is None:
        return None
    change = now - action.before if expected.direction == "up" else action.before - now
    return change >= expected.amount


def verified(action: Action, now: float | None, *, seconds: float, times: int, stands: bool) -> Verified:
    """Return what is known ``seconds`` after an action: ``times`` looks in a row have seen the number moved.

    ``stands``: the verdict that asked for it still does; where it no longer does, nothing more was to be done.
    """
    expected = action.plan.expected
    if expected is None:
        return "unknown"
    if times >= 2:
        return "helped"
    if seconds < expected.seconds:
        return "not_yet"
    if not stands:
        return "helped"
    return "unknown" if moved(action, now) is None else "did_not"


def milder(action: Action, state: AgentState, policy: Policy) -> dict[str, Argument] | None:
    """Return the arguments of the next step of taking back; None: the next step is to end it."""
    lever, now = action.plan.lever, action.plan.arguments
    engine = engine_of(state, action.plan.subject)
    if engine is None:
        return None
    if lever == "active_cap":
        return _wider(action, engine.running or 0, policy.actions.undo_factor)
    if lever == "watermark":
        return _lower(now, engine.pool.capacity if engine.pool is not None else 0)
    if lever in ("admission", "enforce_admission"):
        if CONCURRENCY in now and not any(rule in now for rule in RULES[0]):
            return _more_at_once(now, engine, policy.actions.undo_factor)
        return _without_a_rule(now, short_first=lever == "admission")
    return None


def _wider(action: Action, running: int, factor: float) -> dict[str, Argument] | None:
    requests = action.plan.arguments.get("requests")
    before = [each.effect["before_requests"] for each in action.outcomes if "before_requests" in each.effect]
    if not isinstance(requests, int) or requests >= CAP_MARGIN * max(1, running):
        return None
    wider = max(requests + 1, int(factor * requests))
    return None if before and wider >= min(before) else {"requests": wider}


def _lower(now: dict[str, Argument], capacity: int) -> dict[str, Argument] | None:
    blocks = now.get("blocks")
    return None if not isinstance(blocks, int) or blocks // 2 < LEAST_WATERMARK * capacity else {"blocks": blocks // 2}


def _more_at_once(now: dict[str, Argument], engine: EngineState, factor: float) -> dict[str, Argument] | None:
    """Raise how many requests tenants may have at once; a limit that holds nobody back any more is taken off."""
    rows = engine.detail.tenants if engine.detail is not None else None
    has = {row.tenant: row.running + row.waiting for row in rows or ()}
    table = now[CONCURRENCY]
    limits = table if isinstance(table, dict) else {}
    wider: dict[str, int | float] = {
        tenant: max(int(most) + 1, int(factor * most))
        for tenant, most in limits.items()
        if most < CAP_MARGIN * max(1, has.get(tenant, 0))
    }
    left = {name: value for name, value in now.items() if name != CONCURRENCY}
    if wider:
        return left | {CONCURRENCY: wider}
    return left or None


def _without_a_rule(now: dict[str, Argument], *, short_first: bool) -> dict[str, Argument] | None:
    """Take the first group of rules off; with others left, short requests come first from then on."""
    present = [group for group in RULES if any(rule in now for rule in group)]
    if len(present) <= 1:
        return None
    left = {name: value for name, value in now.items() if name not in present[0]}
    return left | {"short_first": True} if short_first else left
