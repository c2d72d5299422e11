"""Reading a large allocator snapshot: time beside a plain load of the same pickle, and memory, a process for each.

The agent's environment does the work, as for a user; the budgets are the ones that the issue names.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.rows import Row, median_ratio
from tests.bed.snapshots import server_like, write

ROOT = Path(__file__).parents[1]
SECONDS, MIB = 10.0, 500.0
STEPS = 170_000  # 50 MB of file
PLAIN = "import gc, pickle, sys; gc.disable(); pickle.load(open(sys.argv[1], 'rb'))"
# Without the terminal: what is measured is reading, judging and the page.
OURS = """
import sys
from pathlib import Path
from agent.snapshot.analyse import analyse
from agent.snapshot.page import page
from agent.snapshot.read import read
snapshot = read(Path(sys.argv[1]))
report = analyse(snapshot, sys.argv[1])
assert page(snapshot, report) and report.devices[0].findings
"""
# The child's own peak and its processor time: a busy machine doesn't move the latter much.
MEASURE = """
import resource, time
used = resource.getrusage(resource.RUSAGE_SELF)
print(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def run(quick: bool) -> list[Row]:
    """Return the ratio, the seconds and the peak of memory for a file of 50 MB (quick: fewer rounds of the same)."""
    folder = Path(tempfile.mkdtemp(prefix="kvtide-"))
    try:
        path = write(server_like(STEPS, leak_every=50).snapshot(), folder / "snapshot.pickle")
        size = path.stat().st_size
        rounds = [(_measure(OURS, path), _measure(PLAIN, path)) for _ in range(3 if quick else 7)]
    finally:
        shutil.rmtree(folder)
    ours = [one for one, _ in rounds]
    return [
        median_ratio("snapshot.beside_plain_load", [(one[1], plain[1]) for one, plain in rounds]),
        Row("snapshot.seconds", statistics.median(one[0] for one in ours), "s", SECONDS),
        Row("snapshot.memory", max(one[2] for one in ours), "MiB", MIB),
        Row("snapshot.plain_load_memory", max(plain[2] for _, plain in rounds), "MiB"),
        Row("snapshot.file", size / 1e6, "MB"),
    ]


def _measure(code: str, path: Path) -> tuple[float, float, float]:
    """Return wall seconds, processor seconds and the peak of memory (MiB) of ``code`` in a new interpreter."""
    script = f"import time; began = time.monotonic()\n{code}\n{MEASURE}"
    command = [_interpreter(), "-c", script, str(path)]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300).stdout
    wall, cpu, peak = map(float, out.split())
    return wall, cpu, peak


def _interpreter() -> str:
    agent = ROOT / ".venv" / "agent" / "bin" / "python"
    return str(agent) if agent.exists() else sys.executable
