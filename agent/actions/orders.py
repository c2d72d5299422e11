"""Orders to processes, and their answers: who is asked the same thing, all at once, and what each said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from agent.actions.types import Outcome
from engine_hooks.levers.orders import ActionOrder, ActionResult, Arguments, Op

NO_ANSWER, NOT_HERE = "no_answer", "not_here"  # beside engine_hooks.levers.orders.CODES
BUSY = "busy"  # of those: the process did not look at it
VALID_SECONDS = 2.0
AGAIN_SECONDS = 0.3  # then an order is given again for which there were too many

Send = Callable[[ActionOrder], bool]
Expired = Callable[[str, ActionResult], None]
_Key = tuple[str, str, str]  # process, action, op


class Orders:
    """``send`` gives an order to the link; ``untold`` gets what processes say unasked: a lease that ran out."""

    def __init__(self, send: Send, untold: Expired) -> None:
        self._send = send
        self._untold = untold
        self._waiting: dict[_Key, asyncio.Future[ActionResult]] = {}

    def heard(self, instance: str, result: ActionResult) -> None:
        """Take what a process said of an order."""
        waiting = self._waiting.get((instance, result.action, result.op))
        if waiting is not None and not waiting.done() and result.code != "expired":
            waiting.set_result(result)
        else:
            self._untold(instance, result)

    def tell(self, order: ActionOrder) -> bool:
        """Send an order whose answer nobody waits for; return whether its process is here."""
        return self._send(order)

    async def ask(
        self,
        op: Op,
        *,
        action: str,
        lever: str,
        targets: Iterable[str],
        arguments: Arguments | None = None,
        lease_seconds: float,
        seconds: float,
    ) -> tuple[Outcome, ...]:
        """Give all ``targets`` the same order; return what each answered within so many seconds, in their order.

        One that has too many orders at once is asked again.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        asked = tuple(targets)
        answers: dict[str, asyncio.Future[ActionResult]] = {}
        here: set[str] = set()

        def give(targets: Iterable[str]) -> None:
            for target in targets:
                answers[target] = self._waiting[target, action, op] = loop.create_future()
                order = ActionOrder(
                    action=action,
                    lever=lever,
                    op=op,
                    instance=target,
                    lease_seconds=lease_seconds,
                    valid_seconds=min(VALID_SECONDS, seconds),
                    arguments=arguments or {},
                )
                if self._send(order):
                    here.add(target)

        try:
            give(asked)
            while waiting := [answers[target] for target in asked if target in here and not answers[target].done()]:
                await asyncio.wait(waiting, timeout=max(0.0, deadline - loop.time()))
                again = [target for target in here if _turned_away(answers[target])]
                if not again or loop.time() + AGAIN_SECONDS >= deadline:
                    break
                await asyncio.sleep(AGAIN_SECONDS)
                give(again)
        finally:
            for target in asked:
                self._waiting.pop((target, action, op), None)
        return tuple(self._outcome(target, answers[target], here=target in here, seconds=seconds) for target in asked)

    @staticmethod
    def _outcome(target: str, answer: asyncio.Future[ActionResult], *, here: bool, seconds: float) -> Outcome:
        if not here:
            return Outcome(target=target, code=NOT_HERE, detail="it is not connected", effect={})
        if not answer.done():
            return Outcome(target=target, code=NO_ANSWER, detail=f"no answer within {seconds:g} s", effect={})
        result = answer.result()
        return Outcome(
            target=target, code=result.code, detail=result.detail, effect=result.effect, in_force=result.in_force
        )


def _turned_away(answer: asyncio.Future[ActionResult]) -> bool:
    return answer.done() and answer.result().code == BUSY
