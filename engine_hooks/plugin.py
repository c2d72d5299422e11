"""The ``vllm.general_plugins`` entry point.

vLLM calls it in the API server, in EngineCore and in each worker. It guards a plugin's import but not its call, so
everything is caught here.
"""

from __future__ import annotations

import importlib
import logging

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines


def register() -> None:
    """Install the hooks, unless ``KVTIDE_DISABLE`` says not to. Never raises; may be called again."""
    try:
        from engine_hooks.settings import Settings

        settings = Settings.from_environment()
        if not settings.enabled:
            return
        from engine_hooks.identity import share_engine_id

        share_engine_id()
    except Exception:
        logger.exception("kvtide: the hooks could not be installed; the engine goes on without them")
        return
    for name in ("core.hook", "worker.hook", "frontend.member", "frontend.hook"):
        try:
            importlib.import_module(f"engine_hooks.{name}").install(settings)
        except Exception:
            logger.exception("kvtide: engine_hooks.%s could not be installed; the engine goes on without it", name)
