"""Where we enter vLLM: where an EngineCore begins its work, and three methods of each that does.

On the classes only the beginning is wrapped; the rest is set on the instance once it has come up, so that
subclasses keep their own methods and no other engine changes. Originals run first and untouched: their results and
exceptions pass through.
"""

from __future__ import annotations

import functools
import logging
import os
import weakref
from collections.abc import Callable
from typing import Any

from engine_hooks.core.reporter import EngineReporter, clock
from engine_hooks.settings import Settings
from engine_hooks.wrapping import wrap

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines

_MARK = "__kvtide__"


class _Sentinel:
    """Our own wake-up in the engine's input queue. It is swallowed by our wrapper and never passed on: in some
    versions an unknown request type kills the engine.
    """

    def __repr__(self) -> str:
        return "<kvtide wake-up>"


WAKE_UP = _Sentinel()


def install(settings: Settings) -> None:
    """Have every engine that comes up in this process, or in one forked from it, watched.

    A spawned EngineCore loads its plugins inside its own constructor, too late to wrap that: an engine with a busy
    loop is attached when the loop begins, one in its caller's process when its constructor has returned.
    """
    from vllm.v1.engine import core

    wrap(core.EngineCore, "__init__", lambda original: _after_construction(original, settings))
    for value in list(vars(core).values()):
        if isinstance(value, type) and issubclass(value, core.EngineCore) and "run_busy_loop" in vars(value):
            wrap(value, "run_busy_loop", lambda original: _before_loop(original, settings))


def _after_construction(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if not hasattr(self, "run_busy_loop"):
            _try_attach(self, settings)

    return init


def _before_loop(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    @functools.wraps(original)
    def run_busy_loop(self: Any, *args: Any, **kwargs: Any) -> Any:
        _try_attach(self, settings)
        return original(self, *args, **kwargs)

    return run_busy_loop


def _try_attach(engine: Any, settings: Settings) -> None:
    try:
        attach(engine, settings)
    except Exception:
        logger.exception("kvtide: this engine can't be watched; it goes on without us")


def attach(engine: Any, settings: Settings) -> EngineReporter:
    """Watch ``engine``, an EngineCore that has come up: wrap its step, its input and its shutdown. Once."""
    watched_by: EngineReporter | None = vars(engine).get(_MARK)
    if watched_by is not None:
        return watched_by
    has_loop = hasattr(engine, "run_busy_loop")
    # Read first: a vLLM without these is refused before anything was changed.
    step_name = "_process_engine_step" if has_loop else "step_fn"
    step, shutdown = getattr(engine, step_name), engine.shutdown
    wake: Callable[[], None] | None = None
    if has_loop:
        handle, queue = engine._handle_client_request, engine.input_queue

        def wake() -> None:
            queue.put_nowait((WAKE_UP, None))

    reporter = EngineReporter(engine, settings, wake)
    setattr(engine, _MARK, reporter)
    setattr(engine, step_name, _watched_step(step, reporter))
    if has_loop:
        engine._handle_client_request = _listening(handle, reporter)
    engine.shutdown = _closing(shutdown, reporter)
    # An engine that is dropped without a shutdown must not leave the link behind, nor the scheduler that it holds.
    weakref.finalize(engine, reporter.close).atexit = False
    reporter.start()
    return reporter


def _watched_step(original: Callable[..., Any], reporter: EngineReporter) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Any:
        began = clock()
        result = original(*args, **kwargs)
        reporter.after_step(began)
        return result

    return step


def _listening(original: Callable[..., Any], reporter: EngineReporter) -> Callable[..., Any]:
    @functools.wraps(original)
    def handle(request_type: Any, *args: Any, **kwargs: Any) -> Any:
        if request_type is WAKE_UP:
            reporter.on_wake()
            return None
        return original(request_type, *args, **kwargs)

    return handle


def _closing(original: Callable[..., Any], reporter: EngineReporter) -> Callable[..., Any]:
    owner = os.getpid()

    @functools.wraps(original)
    def shutdown(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() == owner:
            try:
                reporter.close()
            except Exception:
                logger.exception("kvtide: the link could not be closed; the engine shuts down all the same")
        return original(*args, **kwargs)

    return shutdown
