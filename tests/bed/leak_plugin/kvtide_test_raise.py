"""A vLLM plugin that makes the hooks raise at random: whatever they do on an engine's threads, it must not feel it.

It is idle unless ``KVTIDE_TEST_RAISE_DIR`` is set. While there is a file ``raise`` in that directory, with a number
from 0 to 1, each call of a function of the hooks raises with that probability before it has done anything. The only
ones that never do are those that vLLM calls itself: they are where everything must be caught. ``raised-<pid>.json``
tells how often each has raised. With ``KVTIDE_TEST_RAISE_ENTRY`` the entry point itself raises at its first step.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import pkgutil
import random
import threading
import time
from collections import Counter
from pathlib import Path
from types import FunctionType
from typing import Any

VARIABLE, ENTRY = "KVTIDE_TEST_RAISE_DIR", "KVTIDE_TEST_RAISE_ENTRY"
POLL_SECONDS = 0.2
PACKAGES = ("core", "worker", "frontend", "levers", "torch")
# What wrappers of vLLM's own methods call at once: what these catch is what is tried.
OUTERMOST = {"after_step", "on_wake"}


class PlantedError(RuntimeError):
    """Nothing is wrong but this."""


class Planter:
    """Decides which calls raise. Reads its orders on a thread of its own, for a hook costs microseconds."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.share = 0.0
        self.raised: Counter[str] = Counter()
        self._draw = random.Random(os.getpid())

    def start(self) -> None:
        """Start to look for orders."""
        threading.Thread(target=self._look, name="kvtide-test-raise", daemon=True).start()

    def at_random(self, name: str) -> None:
        """Raise, or not."""
        if self.share and self._draw.random() < self.share:
            self.raised[name] += 1
            raise PlantedError(f"planted in {name}")

    def _look(self) -> None:
        order, told = self.directory / "raise", self.directory / f"raised-{os.getpid()}.json"
        while self.directory.exists():
            try:
                self.share = float(order.read_text())
            except (OSError, ValueError):
                self.share = 0.0
            if self.raised:
                partial = self.directory / f".{os.getpid()}"
                partial.write_text(json.dumps(dict(self.raised)))
                partial.replace(told)
            time.sleep(POLL_SECONDS)


def _wrap(owner: Any, name: str, function: FunctionType, planter: Planter) -> None:
    label = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def raising(*args: Any, **kwargs: Any) -> Any:
        planter.at_random(label)
        return function(*args, **kwargs)

    setattr(owner, name, raising)


def _plant(planter: Planter) -> None:
    """Wrap the methods of all classes of the hooks but their constructors and what is outermost."""
    import engine_hooks

    for package in PACKAGES:
        folder = f"{engine_hooks.__path__[0]}/{package}"
        for found in pkgutil.walk_packages([folder], f"engine_hooks.{package}."):
            module = importlib.import_module(found.name)
            for owner in list(vars(module).values()):
                if isinstance(owner, type) and owner.__module__ == found.name:
                    for name, function in list(vars(owner).items()):
                        if type(function) is FunctionType and not name.startswith("__") and name not in OUTERMOST:
                            _wrap(owner, name, function, planter)


def register() -> None:
    """Entry point ``vllm.general_plugins``: plant, if asked to by the environment."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    planter = Planter(Path(directory))
    try:
        _plant(planter)
    except Exception as error:  # the test sees that nothing has raised
        (planter.directory / "error.json").write_text(json.dumps({"error": repr(error)}))
        return
    planter.start()
    os.register_at_fork(after_in_child=planter.start)


if os.environ.get(ENTRY):  # plugins are loaded, all of them, before the first is called
    from engine_hooks.settings import Settings

    def _raise(*_: Any, **__: Any) -> Any:
        raise PlantedError("planted in the entry point")

    Settings.from_environment = _raise  # type: ignore[method-assign]
