"""The desk of one process: takes orders, asks its levers, keeps leases, and undoes what nobody renews.

All of it runs on the one thread that owns what the levers change. The process has the last word: a lever that its own
environment does not list is not pulled, whoever asks.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from engine_hooks.guard import Guard
from engine_hooks.levers.base import Done, Lever, RefusedError, replaces
from engine_hooks.levers.orders import ActionOrder, ActionResult, LeaseRow, LeverRow
from engine_hooks.names import shown

REMEMBERED = 256  # results of past actions: an order whose answer was lost comes again
NEVER = float("inf")
AGAIN_SECONDS = 10.0  # between two tries of an undo that may be tried again


@dataclass(slots=True)
class _Lease:
    order: ActionOrder
    done: Done
    until: float


class LeverDesk:
    """``levers``: those of this process, by name; ``unsupported``: why others are not there. ``allowed``: what the
    environment lists. ``clock``: monotonic seconds.

    ``next_expiry``: when the first lease runs out, in the clock's seconds.
    """

    def __init__(
        self,
        instance: str,
        levers: Mapping[str, Lever],
        *,
        unsupported: Mapping[str, str],
        allowed: Iterable[str],
        guard: Guard,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._instance = instance
        self._levers = dict(levers)
        self._unsupported = dict(unsupported)
        self._allowed = frozenset(allowed)
        self._guard = guard
        self._clock = clock
        self._leases: dict[str, _Lease] = {}  # by lever: two actions never hold the same one
        self._owed: dict[str, _Lease] = {}  # by lever: what has ended, and could not be undone yet
        self._answered: OrderedDict[str, ActionResult] = OrderedDict()
        self.next_expiry = NEVER

    def rows(self) -> tuple[LeverRow, ...]:
        """Return what there is, and why what isn't usable is not."""
        names = sorted({*self._levers, *self._unsupported})
        return tuple(LeverRow(lever=name, ok=not (why := self._why_not(name)[1]), reason=why) for name in names)

    def in_force(self) -> tuple[LeaseRow, ...]:
        """Return the leases that stand, and what has ended and could not be undone yet."""
        now = self._clock()
        return tuple(
            LeaseRow(
                action=lease.order.action,
                lever=name,
                left_seconds=max(0.0, lease.until - now),
                arguments=lease.order.arguments,
            )
            for name, lease in sorted({**self._owed, **self._leases}.items())
        )

    def execute(self, order: ActionOrder, waited: float) -> ActionResult:
        """Obey ``order``, which has waited so many seconds, or say why not. Never raises."""
        before = self._answered.get(order.action)
        if order.op == "apply" and before is not None:
            return before  # done already: its answer was lost
        began = time.thread_time()
        try:
            result = self._obey(order, waited)
        except RefusedError as refusal:
            result = _result(order, refusal.code, str(refusal), in_force=self._holds(order))
        except Exception as error:
            self._guard.note(f"lever_{order.lever}", error)
            text = f"{type(error).__name__}: {error}"
            result = _result(order, "failed", text, in_force=self._holds(order))
        result = msgspec.structs.replace(result, seconds=time.thread_time() - began)
        if order.op == "apply" and result.code != "stale":
            self._answered[order.action] = result
            while len(self._answered) > REMEMBERED:
                self._answered.popitem(last=False)
        return result

    def tick(self) -> tuple[ActionResult, ...]:
        """Undo what has not been renewed in time; return what was, to be told. Never raises."""
        now = self._clock()
        if now < self.next_expiry:
            return ()
        ended = [lease for lease in (*self._leases.values(), *self._owed.values()) if now >= lease.until]
        return tuple(self._let_go(lease.order, lease, "expired") for lease in ended)

    # -- one order ----------------------------------------------------------------------------------------

    def _obey(self, order: ActionOrder, waited: float) -> ActionResult:
        if order.instance != self._instance:
            raise RefusedError("wrong_engine", f"this is {self._instance[:12]}, not {order.instance[:12]}")
        if order.op == "undo":  # never too late, and never forbidden
            lease = self._lease(order)
            return self._let_go(order, lease, "undone")
        if waited > order.valid_seconds:
            raise RefusedError("stale", f"it waited for {waited:.1f} s, {order.valid_seconds:.1f} s are allowed")
        if order.op == "renew":
            self._lease(order).until = self._clock() + order.lease_seconds
            self._note_expiry()
            return _result(order, "done", in_force=True)
        code, why = self._why_not(order.lever)
        if order.op == "amend":
            return self._amend(order, why)
        if order.op == "try":
            if code in ("unknown", "unsupported"):
                raise RefusedError(code, why)
            lever = self._levers[order.lever]
            self._check_free(order, aside=replaces(lever))
            return _result(order, "would", why, lever.would(order.arguments))
        if why:
            raise RefusedError(code, why)
        return self._apply(order)

    def _apply(self, order: ActionOrder) -> ActionResult:
        self._check_free(order)
        return self._keep(order, self._levers[order.lever].apply(order.arguments))

    def _keep(self, order: ActionOrder, done: Done) -> ActionResult:
        if done.undo is not None:
            self._leases[order.lever] = _Lease(order, done, self._clock() + order.lease_seconds)
            self._note_expiry()
        return _result(order, "done", done.detail, done.effect, in_force=done.undo is not None)

    def _amend(self, order: ActionOrder, why: str) -> ActionResult:
        """Put other arguments in the place of those in force; where they are refused those stay, as long as before."""
        lease = self._lease(order)
        if why:
            raise RefusedError("not_allowed", why)
        lever = self._levers[order.lever]
        if replaces(lever):
            done = lever.apply(order.arguments)
            self._let_go(order, lease, "undone")  # of what has been replaced nothing is left to take back
            return self._keep(order, done)
        undone = self._let_go(order, lease, "undone")
        if not undone.ok:
            return undone
        try:
            return self._apply(order)
        except Exception:
            self._as_before(lease)
            raise

    def _as_before(self, lease: _Lease) -> None:
        """Do again what was undone for another that did not come about. Where that fails, nothing is in force."""
        name = lease.order.lever
        try:
            done = self._levers[name].apply(lease.order.arguments)
        except RefusedError:
            return
        except Exception as error:
            self._guard.note(f"lever_{name}", error)
            return
        if done.undo is not None:
            self._leases[name] = _Lease(lease.order, done, lease.until)
            self._note_expiry()

    def _let_go(self, order: ActionOrder, lease: _Lease, code: str) -> ActionResult:
        """End ``lease``: its undo is run once, and what it raises does not bring the lease back. Where it may be tried
        again, it is, and nobody else gets the lever before.
        """
        self._leases.pop(lease.order.lever, None)
        self._owed.pop(lease.order.lever, None)
        effect: dict[str, int | float] = {}
        detail = ""
        if lease.done.undo is not None:
            try:
                effect = lease.done.undo()
            except Exception as error:
                self._guard.note(f"lever_{lease.order.lever}", error)
                code, detail = "failed", f"{type(error).__name__}: {error}"
                if lease.done.again:
                    lease.until = self._clock() + AGAIN_SECONDS
                    self._owed[lease.order.lever] = lease
        self._note_expiry()
        undone = ActionOrder(action=lease.order.action, lever=lease.order.lever, op="undo", instance=order.instance)
        return _result(undone, code, detail, effect)

    def _lease(self, order: ActionOrder) -> _Lease:
        lease = self._leases.get(order.lever)
        if lease is None and order.op == "undo":
            lease = self._owed.get(order.lever)
        if lease is None or lease.order.action != order.action:
            raise RefusedError("unknown", "nothing is in force under this name")
        return lease

    def _holds(self, order: ActionOrder) -> bool:
        lease = self._leases.get(order.lever)
        return lease is not None and lease.order.action == order.action

    def _check_free(self, order: ActionOrder, *, aside: bool = False) -> None:
        """``aside``: what is in force would make room for it."""
        lease = self._leases.get(order.lever)
        if lease is not None and not aside:
            raise RefusedError("conflict", f"action {lease.order.action} holds {order.lever}")
        owed = self._owed.get(order.lever)
        if owed is not None:
            raise RefusedError("conflict", f"action {owed.order.action} could not be undone yet; it is tried again")

    def _why_not(self, lever: str) -> tuple[str, str]:
        if lever in self._unsupported:
            return "unsupported", self._unsupported[lever]
        if lever not in self._levers:
            return "unknown", f"there is no lever {lever} here"
        if lever not in self._allowed:
            return "not_allowed", f"KVTIDE_LEVERS in the engine's environment does not list {lever}"
        return "", ""

    def _note_expiry(self) -> None:
        ends = (lease.until for leases in (self._leases, self._owed) for lease in leases.values())
        self.next_expiry = min(ends, default=NEVER)


def build(makers: Iterable[tuple[str, Callable[[], Lever]]]) -> tuple[dict[str, Lever], dict[str, str]]:
    """Return the levers that could be made, and why the others could not."""
    levers: dict[str, Lever] = {}
    unsupported: dict[str, str] = {}
    for name, make in makers:
        try:
            levers[name] = make()
        except RefusedError as refusal:
            unsupported[name] = shown(str(refusal))[:200]
        except Exception as error:
            unsupported[name] = shown(f"{type(error).__name__}: {error}")[:200]
    return levers, unsupported


def _result(
    order: ActionOrder,
    code: str,
    detail: str = "",
    effect: Mapping[str, int | float] | None = None,
    *,
    in_force: bool = False,
) -> ActionResult:
    return ActionResult(
        action=order.action,
        lever=order.lever,
        op=order.op,
        ok=code in ("done", "would", "undone", "expired"),
        code=code,
        detail=shown(" ".join(detail.split())[:400]),
        effect=dict(effect or {}),
        in_force=in_force,
    )
