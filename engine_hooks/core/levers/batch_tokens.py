"""Smaller steps: fewer tokens a step, so that a long prompt takes its memory bit by bit; running work never starves."""

from __future__ import annotations

from typing import Any

from engine_hooks.core.levers.arguments import need, one_of, only
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.levers.base import Done, RefusedError, number, whole
from engine_hooks.levers.orders import Arguments

MOST = 1 << 24


class BatchTokens:
    """Arguments: ``tokens`` a step, or ``factor`` of what may be now.

    The floor is what all running requests need to get on, each with its drafts, and one block's worth of prompt; in
    whole blocks, as models with recurrent layers stop a prompt only there. It is kept before each step while this is in
    force: a floor of the moment of the order would starve what is admitted later, and one of the most that may ever run
    would leave nothing to lower.
    """

    NAME = "batch_tokens"

    def __init__(self, context: LeverContext) -> None:
        scheduler = context.scheduler
        need(scheduler, "max_num_scheduled_tokens", "running", "schedule")
        config: Any = getattr(scheduler, "scheduler_config", None)
        if not getattr(config, "enable_chunked_prefill", False):
            raise RefusedError("unsupported", "prompts are not chunked here: a longer one would wait for ever")
        if getattr(config, "disable_chunked_mm_input", False):
            raise RefusedError("unsupported", "images are not chunked here: a larger one would wait for ever")
        if getattr(config, "is_encoder_decoder", False) or getattr(scheduler, "is_encoder_decoder", False):
            raise RefusedError("unsupported", "an encoder's input is not chunked")
        self._scheduler = scheduler
        self._before_step = context.before_step
        self._knob = context.knobs.of(scheduler, "max_num_scheduled_tokens", min)
        self._each = 1 + int(getattr(scheduler, "num_spec_tokens", 0) or 0)
        self._block = _largest_block(scheduler)
        # Where several tokens ahead are drafted, a prompt's last chunk must not end among them.
        self._prompt = self._block + int(getattr(scheduler, "num_prefill_lookahead", 0) or 0)
        self._target = 0

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return the tokens a step before and after, and the floor now."""
        target = self._wanted(arguments)
        after = max(target, self._floor())
        if after >= self._knob.value:
            raise RefusedError("nothing", f"running work needs {self._floor()} tokens a step")
        return {"before_tokens": self._knob.value, "after_tokens": after, "floor_tokens": self._floor()}

    def apply(self, arguments: Arguments) -> Done:
        """Lower it; undone by putting back exactly what was there."""
        effect = self.would(arguments)
        self._target = self._wanted(arguments)
        self._knob.ask(self.NAME, int(effect["after_tokens"]))
        self._before_step.add(self.NAME, self._keep_floor)
        return Done(effect, self._undo)

    def _undo(self) -> dict[str, int | float]:
        self._before_step.remove(self.NAME)
        before = self._knob.value
        self._knob.drop(self.NAME)
        return {"before_tokens": before, "after_tokens": self._knob.value}

    def _keep_floor(self) -> None:
        wanted = max(self._target, self._floor())
        if wanted != self._knob.asked_by(self.NAME):
            self._knob.ask(self.NAME, wanted)

    def _floor(self) -> int:
        needed = len(self._scheduler.running) * self._each + self._prompt
        return -(-needed // self._block) * self._block

    def _wanted(self, arguments: Arguments) -> int:
        only(arguments, "tokens", "factor")
        if one_of(arguments, "tokens", "factor") == "tokens":
            tokens = whole(arguments, "tokens", 1, MOST)
        else:
            tokens = int(number(arguments, "factor", 0.1, 1.0) * self._knob.value)
        return max(self._block, tokens // self._block * self._block)


def _largest_block(scheduler: Any) -> int:
    """Tokens of the largest block of any group of layers: chunks that end at multiples of it suit them all."""
    own = (scheduler, getattr(scheduler, "cache_config", None))
    managers = getattr(getattr(scheduler.kv_cache_manager, "coordinator", None), "single_type_managers", ())
    sizes = [getattr(holder, "block_size", None) for holder in (*own, *managers)]
    return max((size for size in sizes if isinstance(size, int) and size > 0), default=1)
