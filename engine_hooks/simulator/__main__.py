"""Reads specs on standard input, runs each, and writes what the agent's side is to hear on standard output."""

from __future__ import annotations

import gc
import importlib
import io
import os
import signal
import sys
from typing import BinaryIO

import msgspec

from engine_hooks.simulator import pipe
from engine_hooks.simulator.clock import VirtualClock
from engine_hooks.simulator.run import Run, quiet_environment
from engine_hooks.simulator.spec import Spec, SpecError

_BUFFER_BYTES = 1 << 20


def main() -> int:
    """Serve until the input ends. What vLLM prints goes to standard error: the pipe is ours alone."""
    out: BinaryIO = io.BufferedWriter(io.FileIO(os.dup(1), "wb"), _BUFFER_BYTES)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's ^C is for the one who started us, and ends our input
    quiet_environment()
    # Before time is virtual: what is imported may measure how long that takes.
    importlib.import_module("vllm.v1.core.sched.scheduler")

    gc.collect()
    gc.freeze()  # what was imported stays: to walk over it again and again would take longer than all steps
    clock = VirtualClock()
    clock.install()
    decoder = msgspec.msgpack.Decoder(Spec)
    while (data := pipe.read_bytes(sys.stdin.buffer)) is not None:
        try:
            spec = decoder.decode(data)
            spec.check()
            Run(spec, clock, out).run()
        except (SpecError, msgspec.MsgspecError) as error:
            pipe.write(out, pipe.Item(clock.now, pipe.FAILED, str(error).encode()))
            out.flush()
        except BrokenPipeError:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
