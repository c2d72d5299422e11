"""The flight recorder and the replay: bytes and processor time of a state, and how much faster than life it is judged.

In the agent's environment, as for a user: ``python -m bench.replay SECONDS`` prints what one node's states cost. All is
processor time, beside the second that a state stands for: the budgets are shares of real time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.rows import Row

ROOT = Path(__file__).parents[1]
RECORD, REPLAY, JUDGE = 0.001, 0.001, 0.004  # of real time: recording, replay of a node with one engine, judging eight
SIZES = {"one": 1, "two": 2, "eight": 8}  # engines, and as many GPUs


def run(quick: bool) -> list[Row]:
    """Return the rows, for nodes with one, two and eight engines and GPUs; ``quick``: of fewer states."""
    agent = ROOT / ".venv" / "agent" / "bin" / "python"
    interpreter = str(agent) if agent.exists() else sys.executable
    command = [interpreter, "-m", "bench.replay", "300" if quick else "1200"]
    out = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=600).stdout
    costs = json.loads(out)
    rows = []
    for name, cost in costs.items():
        least, whole = name == "one", name == "eight"
        rows += [
            Row(f"recorder.bytes_{name}", cost["bytes"], "B/state"),
            Row(f"recorder.cpu_{name}", cost["write"], "cores", RECORD if whole else None),
            Row(f"judge.cpu_{name}", cost["judge"], "cores", JUDGE if whole else None),
            Row(f"replay.time_{name}", cost["replay"], "of real time", REPLAY if least else None),
        ]
    return rows


def measure(seconds: int, size: int) -> dict[str, float]:
    """Return bytes, and processor seconds of writing, judging, and replaying, each of one state on average."""
    from agent.bundle.format import Header, Writer, read
    from agent.judge import Judge
    from agent.policy.types import DEFAULT
    from agent.replay.fold import Fold
    from bench.node_series import series

    judge, judging, writing = Judge(), 0.0, 0.0
    with tempfile.TemporaryDirectory(prefix="kvtide-") as folder:
        path = Path(folder) / "node.kvtide"
        with Writer(path, Header(why="a benchmark")) as writer:
            for state in series(seconds, size):
                began = time.process_time()
                judge.look(state)
                judged = time.process_time()
                writer.state(state)
                judging, writing = judging + judged - began, writing + time.process_time() - judged
        began = time.process_time()
        states = sum(1 for _ in Fold(DEFAULT).judgements(read(path).records()))
        replaying = time.process_time() - began
    if states != seconds:
        raise RuntimeError(f"{states} of {seconds} states came back")
    return {
        "bytes": writer.size / states,
        "write": writing / states,
        "judge": judging / states,
        "replay": replaying / states,
    }


if __name__ == "__main__":
    print(json.dumps({name: measure(int(sys.argv[1]), size) for name, size in SIZES.items()}))
