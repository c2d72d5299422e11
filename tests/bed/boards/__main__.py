"""``make boards``: two minutes of a node with a leak on it, and each board as a picture of what Prometheus then has.

``python -m tests.bed.boards --modules build/boards --out build/boards`` in the agent environment; ``--seconds`` is how
long the load lasts. ``--prometheus URL --end UNIX`` plays nothing and asks the one that is there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from kvtide_chaos.kv_blocks import arm, wait_planted

from tests.bed.boards import query, scene
from tests.bed.boards.query import Asker, Board, Window
from tests.bed.load import run_load

WEB = Path(__file__).parent / "web"
LEAK_AT, ORDER_AT = 0.3, 0.55  # shares of the load's time
LEAST, MOST = 20, 60  # leaked blocks
REST_SECONDS = 15.0  # shown after the load
DRAW_SECONDS = 900.0


def main() -> int:
    """Play, ask, draw; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bed.boards", description=__doc__)
    parser.add_argument("--modules", type=Path, required=True, help="the folder that `npm ci` filled")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the pictures")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long the load lasts")
    parser.add_argument("--prometheus", default="", help="ask this one, and play nothing")
    parser.add_argument("--end", type=float, help="Unix time at which the boards end")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.prometheus:
        return draw(asked.prometheus, asked.end or time.time(), asked.seconds, asked.modules, asked.out)
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        print("[kvtide] starting a vLLM server and what is around it: a minute or two", flush=True)
        with scene.playing(Path(name)) as playing:
            print(f"[kvtide] playing for {asked.seconds + REST_SECONDS:.0f} s", flush=True)
            asyncio.run(play(playing, asked.seconds))
            return draw(playing.prometheus.url, time.time(), asked.seconds, asked.modules, asked.out)


async def play(playing: scene.Scene, seconds: float) -> None:
    """Send the load, leak under it, pull a lever as a person does, and let it come to rest."""

    async def trouble() -> None:
        await asyncio.sleep(seconds * LEAK_AT)
        arm(playing.leaks, LEAST, MOST)
        await asyncio.sleep(seconds * (ORDER_AT - LEAK_AT))
        await asyncio.to_thread(playing.agent.wait, lambda: playing.order("active_cap", "requests=16"), seconds)

    plan = playing.load(seconds, concurrency=24)
    report, _ = await asyncio.gather(run_load(playing.engine.url, plan), trouble())
    planted = wait_planted(playing.leaks, REST_SECONDS)
    print(f"[kvtide] {report.completed} requests completed, {planted.n} blocks leaked", flush=True)
    await asyncio.sleep(REST_SECONDS)


def draw(url: str, end: float, seconds: float, modules: Path, out: Path) -> int:
    """Ask every query of every board, and draw the answers."""
    window = Window(end - seconds - REST_SECONDS, end, scene.SCRAPE_SECONDS)
    asker = Asker(url, window)
    files = []
    for uid, board in query.boards().items():
        given = out / f"{uid}.data.json"
        given.write_text(json.dumps(answers(asker, board)), encoding="utf-8")
        files.append(str(given))
    print(f"[kvtide] drawing {len(files)} boards into {out}", flush=True)
    command = ["node", str(WEB / "draw.mjs"), str(modules), str(out), *files]
    return subprocess.run(command, check=False, timeout=DRAW_SECONDS).returncode


def answers(asker: Asker, board: Board) -> dict[str, object]:
    """Return what ``web/draw.mjs`` draws: the board, its answers by panel, annotations' moments, and the range."""
    (values, options), window = asker.variables(board), asker.window
    found, drawn = {}, []
    for panel, own in query.panels(board, options):
        drawn.append(panel)
        targets = [target for target in panel.get("targets", ()) if not target.get("hide")]
        found[panel["id"]] = [
            {
                "refId": target["refId"],
                "legend": target.get("legendFormat"),
                "series": asker.ask(each, {**values, **own}),
            }
            for target, each in zip(targets, query.queries(board, panel), strict=True)
        ]
    colours = {each["name"]: each["iconColor"] for each in board["annotations"]["list"]}
    marks = [
        {"at": at * 1000, "colour": colours[name]}
        for name, each in query.annotations(board)
        for series in asker.ask(each, values)
        for at in _begins(series["values"], window.step)
    ]
    return {
        "board": {**board, "panels": drawn},
        "from": window.start,
        "to": window.end,
        "step": window.step,
        "variables": [(name, values[name]) for name in options],
        "answers": found,
        "marks": marks,
    }


def _begins(values: list[tuple[float, str]], step: float) -> list[float]:
    """Return when what an annotation shows began: Grafana makes one of points that follow one another."""
    times = [at for at, _ in values]
    return [at for before, at in pairwise([float("-inf"), *times]) if at - before > 1.5 * step]


if __name__ == "__main__":
    sys.exit(main())
