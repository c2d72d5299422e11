"""``python -m bench [--quick] [NAME...]``: run benchmarks, print a table, write build/bench.json.

Runs in the engine environment. Exits with 1 when a budget was missed or a benchmark failed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import cast

from bench.rows import Row, table

RESULT = Path(__file__).parents[1] / "build" / "bench.json"
# Modules of this package; imported when they run, because vLLM takes its time.
NAMES = (
    "audit_pause",
    "scheduler_path",
    "beside_vllm",
    "hook_share",
    "throughput",
    "snapshot",
    "collect",
    "load",
    "replay",
    "breach_to_lever",
    "compaction",
    "prefix_order",
    "top",
    "breach_to_webhook",
)


def main() -> int:
    """Run what was asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure what kvtide costs.")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: all in less than 3 minutes")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which (default: all): {', '.join(NAMES)}")
    options = parser.parse_args()
    for name in options.names:
        if name not in NAMES:
            parser.error(f"no benchmark {name!r}; there are: {', '.join(NAMES)}")
    # As on Ctrl-C, servers that were started are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    rows: list[Row] = []
    failed = False
    for name in options.names or NAMES:
        print(f"[bench] {name} ...", file=sys.stderr, flush=True)
        began = time.monotonic()
        run = cast("Callable[[bool], list[Row]]", importlib.import_module(f"bench.{name}").run)
        try:
            rows += run(options.quick)
        except Exception:
            failed = True
            traceback.print_exc()
        print(f"[bench] {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(table(rows))
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")
    return int(failed or any(row.ok is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
