"""Two KV connectors on the scheduler's side; what workers would do is told by :mod:`engine_hooks.simulator.transfers`.

vLLM imports this module by its name when it builds a scheduler; nobody else does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import base

# From 0.11 on a connector says by this that it can work beside several groups of layers.
_BASES: tuple[type, ...] = (base.KVConnectorBase_V1, *((base.SupportsHMA,) if hasattr(base, "SupportsHMA") else ()))

Told = Callable[[Any], None]


class _Quiet(*_BASES):  # type: ignore[misc]
    """A connector that does nothing."""

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """No worker runs here."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """No worker runs here."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """No worker runs here."""

    def wait_for_save(self) -> None:
        """No worker runs here."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Know of no KV elsewhere."""
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Keep nothing."""

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Tell workers nothing."""
        return base.KVConnectorMetadata()

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Let a finished request's blocks go at once."""
        return False, None

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Decide as for one group."""
        return self.request_finished(request, block_ids[0])


class RemoteConnector(_Quiet):
    """Both ends of disaggregated prefill, steered by a request's ``kv_transfer_params`` as vLLM's proxies send them.

    ``kept`` hears of finished requests whose blocks wait for a peer, ``loading`` of those whose KV is on its way.
    """

    kept: Told | None = None
    loading: Told | None = None

    def lease(self, seconds: float | None) -> None:
        """Have a lease, where the hooks look for it."""
        self._kv_lease_duration = seconds

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Return the whole blocks of a remote prefill, once per request."""
        if not (request.kv_transfer_params or {}).get("do_remote_prefill"):
            return 0, False
        size = self._vllm_config.cache_config.block_size
        found = (request.num_prompt_tokens - 1) // size * size - num_computed_tokens
        return max(0, found), found > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Load only once: afterwards the rest is computed here."""
        if request.kv_transfer_params and request.kv_transfer_params.get("do_remote_prefill"):
            request.kv_transfer_params["do_remote_prefill"] = False
            if num_external_tokens > 0 and self.loading is not None:
                self.loading(request)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Keep the blocks of a request that somebody else is to decode."""
        keeps = bool((request.kv_transfer_params or {}).get("do_remote_decode")) and bool(block_ids)
        if keeps and self.kept is not None:
            self.kept(request)
        return keeps, None


class OpaqueConnector(_Quiet):
    """A connector that nobody knows: it takes references on blocks in no book that could be read."""

    finishing: Told | None = None

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        """Keep the pool."""
        self.pool = gpu_block_pool

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Let the request's blocks go; some have been pinned before."""
        if self.finishing is not None:
            self.finishing(request)
        return False, None
