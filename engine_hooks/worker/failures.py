"""What a worker's calls raise: noted if it is the device's or its memory's, and raised on untouched.

vLLM catches what its workers raise, so nothing outside would see it. The wrapper costs a step a tenth of a microsecond.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from engine_hooks.settings import Settings
from engine_hooks.torch.probe import of_process
from engine_hooks.wrapping import wrap

_MARK = "__kvtide_failures__"
PATIENCE = 0.5  # seconds, for an error that may end a process which has just begun to look for the agent
_OF_START = ("init_device", "load_model", "determine_available_memory")
_OF_WRAPPER = ("init_device", "initialize_from_config", "execute_model", "execute_method", "execute_model_ray")
# The wrapper hands these on to the worker that it holds.
_OF_WORKER = ("load_model", "determine_available_memory", "compile_or_warm_up_model", "sample_tokens", "wake_up")


def watch_wrapper(wrapper: type, settings: Settings) -> None:
    """Note what the methods of vLLM's wrapper around its workers raise; Ray's is a class of its own."""
    for name in _OF_WRAPPER:
        if name in vars(wrapper):
            _watch(wrapper, name, settings)


def watch_work(worker: type, settings: Settings) -> None:
    """Note what a worker's own methods raise."""
    for name in _OF_WORKER:
        if hasattr(worker, name):
            _watch(worker, name, settings)


def watch_outputs(settings: Settings) -> None:
    """Note what an asynchronous step has raised: it shows when its output is taken, on whatever thread does that.

    The classes are found once the worker has loaded them.
    """
    from vllm.v1 import outputs

    base = getattr(outputs, "AsyncModelRunnerOutput", None)
    for kind in base.__subclasses__() if base is not None else ():
        if "get_output" in vars(kind):
            _watch(kind, "get_output", settings)


def _watch(owner: type, name: str, settings: Settings) -> None:
    patience = PATIENCE if name in _OF_START else 0.0

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except Exception as error:
                of_process(settings).caught(name, error, patience)
                raise

        return wrapper

    wrap(owner, name, make, _MARK)
