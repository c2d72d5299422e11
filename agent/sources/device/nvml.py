"""The driver's library: loading it, and its errors in words."""

from __future__ import annotations

import ctypes
import importlib
import subprocess
import sys
from typing import Any

from agent.sources.base import SourceAbsentError, SourceError

TRIAL_SECONDS = 5.0
# What a library does as it is loaded can end the process, and no exception tells of that: a child tries it first.
_TRIAL = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"

UNINITIALIZED, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE = 1, 3, 4, 6, 7
DRIVER_NOT_LOADED, TIMEOUT, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED = 9, 10, 13, 15, 16
VERSIONS_DIFFER, ARGUMENT_VERSION = 18, 25

_UNSUPPORTED = {NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION}
_LOST = {GPU_IS_LOST, RESET_REQUIRED}
_WORDS = {
    NOT_SUPPORTED: "not supported by this GPU or driver",
    NO_PERMISSION: "no permission",
    DRIVER_NOT_LOADED: "the NVIDIA kernel module is not loaded",
    FUNCTION_NOT_FOUND: "this driver is too old: it has no such function",
    GPU_IS_LOST: "the GPU has fallen off the bus or was removed",
    RESET_REQUIRED: "the GPU must be reset",
    VERSIONS_DIFFER: "the driver's library and kernel module are of different versions: reboot, or reload the module",
    ARGUMENT_VERSION: "this driver is too old for this question",
}


class UnsupportedError(Exception):
    """This GPU or driver does not have it; the text says what."""


def load(library: str) -> Any:
    """Return the binding, with ``library`` loaded.

    Raises :class:`SourceError`, a :class:`SourceAbsentError` where there is no driver: there the binding is not even
    imported. What the library does as it is loaded ends a child, not us.
    """
    _try(library)
    try:
        ctypes.CDLL(library)
    except OSError as error:
        if "cannot open shared object file" in str(error):
            raise SourceAbsentError(f"no NVIDIA driver here: {library} is not found") from None
        raise SourceError(f"the NVIDIA driver's library can't be loaded: {error}") from None
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise SourceError(f"nvidia-ml-py is not installed: {error}") from None


def _try(library: str) -> None:
    """Raise :class:`SourceError` where a process that loads ``library`` does not live to tell of it."""
    child = [sys.executable, "-I", "-S", "-c", _TRIAL, library]
    none = subprocess.DEVNULL
    try:
        done = subprocess.run(child, stdin=none, stdout=none, stderr=none, timeout=TRIAL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise SourceError(f"the NVIDIA driver's library is not loaded within {TRIAL_SECONDS:g} s") from None
    except OSError as error:
        raise SourceError(f"no process can be started to try the NVIDIA driver's library: {error.strerror}") from None
    if done.returncode < 0:
        raise SourceError(f"the NVIDIA driver's library ends the process that loads it (signal {-done.returncode})")


def code_of(error: Exception) -> int | None:
    """Return NVML's number of ``error``, or None when it is not NVML's."""
    return getattr(error, "value", None)


def why(error: Exception) -> str:
    """Say in one line what ``error`` means."""
    code = code_of(error)
    if code is None:
        return str(error) if isinstance(error, UnsupportedError) else f"{type(error).__name__}: {error}"
    return _WORDS.get(code) or f"the driver says: {error} (NVML error {code})"


def unsupported(error: Exception) -> bool:
    """Whether ``error`` says that there is no such thing here, as against a failure."""
    return isinstance(error, UnsupportedError) or code_of(error) in _UNSUPPORTED


def lost(error: Exception) -> bool:
    """Whether ``error`` says that the whole GPU is gone."""
    return code_of(error) in _LOST
