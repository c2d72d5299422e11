"""An API server as a member of its engine: that it lives, and how many requests it has in flight."""

from __future__ import annotations

import sys
from typing import Any

from engine_hooks.frontend.admission.wiring import gate_of_process, guard_of_process, open_desk
from engine_hooks.identity import Identity
from engine_hooks.member_link import MemberLink, attach, call_after, detach, member_of
from engine_hooks.members import FRONTEND, FrontendRow
from engine_hooks.settings import Settings


def install(settings: Settings) -> None:
    """Have every AsyncLLM that comes up in this process reported. Front ends that are not Python have none.

    Importing it takes a second: a process that serves no HTTP has no API server, and is left alone.
    """
    if "fastapi" not in sys.modules and "vllm.v1.engine.async_llm" not in sys.modules:
        return
    from vllm.v1.engine.async_llm import AsyncLLM

    def constructed(async_llm: Any, *_args: Any, **_kwargs: Any) -> None:
        watch(async_llm, settings)

    def ended(async_llm: Any, *_args: Any, **_kwargs: Any) -> None:
        detach(async_llm)
        gate_of_process(settings.tenants).close()

    call_after(AsyncLLM, "__init__", constructed)
    call_after(AsyncLLM, "shutdown", ended)


def watch(async_llm: Any, settings: Settings) -> MemberLink:
    """Report ``async_llm``, an AsyncLLM that has come up. Once."""
    known = member_of(async_llm)
    if known is not None:
        return known
    parallel = async_llm.vllm_config.parallel_config
    count = int(getattr(parallel, "_api_process_count", 1) or 1)
    number = max(0, int(getattr(parallel, "_api_process_rank", 0) or 0))
    processor = async_llm.output_processor  # not async_llm: whoever drops it last runs its shutdown
    gate = gate_of_process(settings.tenants)

    def read() -> FrontendRow:
        return FrontendRow(
            count=count,
            requests=processor.get_num_unfinished_requests(),
            refused=gate.refused.rows(),
            hygiene=gate.hygiene.rows(),
        )

    identity = Identity.of_member(async_llm.vllm_config, settings, FRONTEND, 0, number)
    desk = open_desk(gate, async_llm, instance=identity.instance, settings=settings, servers=count, number=number)
    member = MemberLink(async_llm, identity, settings, read, desk=desk, guards=(guard_of_process(),))
    attach(async_llm, member)
    return member
