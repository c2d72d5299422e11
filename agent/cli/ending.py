"""How a command ends: its exit code, and an error as one line on standard error."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

from agent.errors import KvtideError
from agent.plain import plain

INTERRUPTED = 130  # as shells say of one that ctrl+c ended

# What a write to standard output ends with when its reader is gone or its disk is full.
_NO_OUTPUT = {errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF}

_P = ParamSpec("_P")


def ending(call: Callable[_P, int], *arguments: _P.args, **options: _P.kwargs) -> int:
    """Call ``call`` and return its exit code, or that of what it raised."""
    try:
        code = call(*arguments, **options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KvtideError as error:
        sys.stderr.write(f"kvtide: {plain(str(error))}\n")
        return error.exit_code
    except OSError as error:
        if error.filename is not None:
            sys.stderr.write(f"kvtide: {plain(str(error.filename))}: {error.strerror}\n")
            return 1
        if error.errno not in _NO_OUTPUT:
            raise
        if error.errno != errno.EPIPE:  # a reader that has seen enough is no fault
            sys.stderr.write(f"kvtide: what was asked for can't be written: {error.strerror}\n")
        _drop_output()
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _drop_output() -> None:
    """Let what is left of the output go nowhere, so that the interpreter does not try to write it at its end."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
