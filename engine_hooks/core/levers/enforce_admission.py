"""Refuse requests in the engine core, as they are added: where the front end has no gate of ours (gRPC, Rust).

A refused request ends at once with the finish reason that vLLM has for errors: its client learns that it failed, not
why. Where the front end is Python, its own lever ``admission`` answers better.
"""

from __future__ import annotations

import functools
from typing import Any

from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.marks import marks_of
from engine_hooks.frontend.admission.rules import Rules, rules_of
from engine_hooks.levers.base import Done, RefusedError
from engine_hooks.levers.orders import Arguments

# What can be told from a request in the engine; the other rules are a front end's.
ENFORCED = frozenset(
    {"shed", "quotas", "default_quota", "map_quotas", "sla_factors", "paid_factors", "concurrency"}
    | {"default_concurrency", "prompt_limit", "pool_share", "retry_after"}
)
MARGIN = 64  # requests that have ended and are still counted


class EnforceAdmission:
    """Counts what each tenant's unfinished requests may come to hold, and ends at once what would be too much."""

    NAME = "enforce_admission"

    def __init__(self, context: LeverContext) -> None:
        engine = context.engine
        self._context = context
        self._held: dict[str, tuple[str, int]] = {}  # tenant and blocks, by request
        if not hasattr(engine, "run_busy_loop") or not callable(getattr(engine, "_send_error_outputs_to_client", None)):
            raise RefusedError("unsupported", "this vLLM has no way to end a request with an error as it is added")
        if hasattr(engine, "dp_group"):
            # Its peers wait in a collective for the rank that was to begin the wave.
            raise RefusedError("unsupported", "a rank that steps together with others can't refuse a request alone")

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return how many requests are in the engine, which count as soon as the rules are in force."""
        self._checked(arguments)
        return {"requests": len(self._context.scheduler.requests)}

    def apply(self, arguments: Arguments) -> Done:
        """Look at each request that is added from now on."""
        rules = self._checked(arguments)
        engine, scheduler = self._context.engine, self._context.scheduler
        own = vars(engine).get("add_request")
        add = engine.add_request
        self._held = {key: self._need(request) for key, request in scheduler.requests.items()}
        refused = 0
        on = True

        @functools.wraps(add)
        def add_request(request: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal refused
            if on and self._context.guard.run(self.NAME, self._refuses, rules, request):
                refused += 1
                return engine._send_error_outputs_to_client([request.request_id], request.client_index)
            return add(request, *args, **kwargs)

        engine.add_request = add_request

        def undo() -> dict[str, int | float]:
            nonlocal on
            on = False  # another may have wrapped ours: then it stays and passes on
            if vars(engine).get("add_request") is add_request:
                if own is None:
                    del engine.add_request
                else:
                    engine.add_request = own
            self._held = {}
            return {"refused": refused}

        return Done({"requests": len(self._held)}, undo)

    def _checked(self, arguments: Arguments) -> Rules:
        rules = rules_of(arguments)
        beyond = sorted(set(arguments) - ENFORCED)
        if beyond:
            raise RefusedError("bad_argument", f"{beyond[0]}: only a front end can enforce it")
        return rules

    def _need(self, request: Any) -> tuple[str, int]:
        """Return the tenant of ``request``, and the blocks that it may come to hold."""
        output = getattr(request, "max_tokens", None) or 1
        tokens = min(request.num_prompt_tokens + output, self._context.scheduler.max_model_len)
        return marks_of(request).tenant, -(-tokens // self._context.scheduler.block_size)

    def _refuses(self, rules: Rules, request: Any) -> bool:
        if rules.shed:
            return True
        tenant, need = self._need(request)
        capacity = self._context.view.capacity()
        if rules.prompt_limit is not None and request.num_prompt_tokens > rules.prompt_limit:
            return True
        if rules.pool_share is not None and need > int(rules.pool_share * capacity):
            return True
        quota = rules.quota_of(tenant, self._context.settings.tenants.map.quotas.get(tenant), capacity)
        most = rules.concurrency_of(tenant)
        if (quota is not None or most is not None) and self._is_over(tenant, need, quota, most):
            self._forget_ended()
            if self._is_over(tenant, need, quota, most):
                return True
        self._held[request.request_id] = (tenant, need)
        if len(self._held) > 2 * len(self._context.scheduler.requests) + MARGIN:
            self._forget_ended()
        return False

    def _is_over(self, tenant: str, need: int, quota: int | None, most: int | None) -> bool:
        mine = [blocks for owner, blocks in self._held.values() if owner == tenant]
        over = quota is not None and sum(mine) + need > quota
        return over or (most is not None and len(mine) + 1 > most)

    def _forget_ended(self) -> None:
        requests = self._context.scheduler.requests
        self._held = {key: held for key, held in self._held.items() if key in requests}
