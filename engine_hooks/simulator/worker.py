"""What a GPU's workers would answer to a step: tokens, drafts, and transfers that have ended."""

from __future__ import annotations

import importlib
import random
from typing import Any

from engine_hooks.simulator.spec import Engine

TOKEN = 5  # what is generated does not matter: sessions differ by what comes before


class Worker:
    """Makes up the output of steps. ``sent`` and ``received``: ids of requests whose transfers have ended by now."""

    def __init__(self, engine: Engine, scheduler: Any, draw: random.Random) -> None:
        from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput

        self._engine = engine
        self._scheduler = scheduler
        self._draw = draw
        self._output, self._transfers, self._drafts = ModelRunnerOutput, KVConnectorOutput, DraftTokenIds
        fields = ModelRunnerOutput.__dataclass_fields__
        self._arrays = "ndarray" in str(fields["sampled_token_ids"].type)
        self._none = {"logprobs": None} if "logprobs" in fields else {}
        self.sent: set[str] = set()
        self.received: set[str] = set()

    def run(self, scheduled: Any) -> Any:
        """Return the output of a step: tokens for each request whose context is computed."""
        ids = list(scheduled.num_scheduled_tokens)
        requests, drafts = self._scheduler.requests, scheduled.scheduled_spec_decode_tokens
        tokens: list[Any] = [self._sample(requests[key], drafts.get(key)) for key in ids]
        if self._arrays:
            numpy: Any = importlib.import_module("numpy")  # the engine's environment has it
            tokens = [numpy.array(sampled) for sampled in tokens]
        output = self._output(
            req_ids=ids,
            req_id_to_index={key: index for index, key in enumerate(ids)},
            sampled_token_ids=tokens,
            prompt_logprobs_dict={},
            pooler_output=[],
            **self._none,
        )
        if self.sent or self.received:
            output.kv_connector_output = self._transfers(finished_sending=self.sent, finished_recving=self.received)
            self.sent, self.received = set(), set()
        return output

    def _sample(self, request: Any, drafts: list[int] | None) -> list[int]:
        if request.num_computed_tokens < request.num_tokens:
            return []
        if not self._engine.drafts:
            return [TOKEN] * self._engine.step_output
        accepted = 0
        while accepted < len(drafts or ()) and self._draw.random() < self._engine.accepted:
            accepted += 1
        return [TOKEN] * (accepted + 1)

    def draft(self, scheduled: Any) -> None:
        """Propose tokens for each request that goes on."""
        if self._engine.drafts:
            live = self._scheduler.requests
            ids = [key for key in scheduled.num_scheduled_tokens if key in live and not live[key].is_finished()]
            self._scheduler.update_draft_token_ids(self._drafts(ids, [[TOKEN] * self._engine.drafts for _ in ids]))
