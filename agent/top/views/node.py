"""The node: what is wrong, GPUs with their waterfalls, engines, the host, what the agent does."""

from __future__ import annotations

from collections.abc import Sequence

from agent.faces import devices, host
from agent.faces.words import agent_troubles, nobody, refusals
from agent.sources.device.state import GpuState
from agent.state import AgentState
from agent.top import bars
from agent.top.action_lines import feed_of, standing_of
from agent.top.engines import Engine, engines_of, health_of, rate_of, standing, worst_first
from agent.top.look import named
from agent.top.seen import Page, Room, Seen, Where
from agent.top.text import Cell, Column, Line, cut_line, labelled, line, pad, paragraph, table
from agent.top.verdict_lines import loud, shortened, tag_of
from agent.units import human_bytes, human_seconds
from agent.waterfall.state import Waterfall

NAME = "node"
ORDERS = ("worst", "name", "held", "growth", "waiting")
HALF = 39  # cells of a GPU where two share a line
ACTIONS_SHOWN = 5
LOW = 40  # lines of a page on which letters of bars are explained in short words
SHORT = {
    "draft model": "draft",
    "LoRA slots": "LoRA",
    "KV held": "held",
    "KV cached idle": "cached",
    "KV empty": "empty",
    "KV cache": "KV",
    "encoder cache": "encoder",
    "CUDA graphs": "graphs",
    "torch, other use": "torch",
    "torch, fragmented": "fragmented",
    "context, libraries": "context",
    "not told": "untold",
    "other processes": "others",
}
_GIB = 1 << 30


def page(state: AgentState, _seen: Seen, where: Where, room: Room) -> Page:
    """Return the page; on a low screen the verdicts give way, never the engines."""
    found = Page(orders=ORDERS)
    engines = _ordered(engines_of(state), where)
    gpus = _gpus(state, room)
    listed = [each for each in engines if where.lists(each.who.label, each.quiet, *(v.kind for v in each.verdicts))]
    below = len(gpus) + len(listed) + 2
    found.lines += _wrong(state, room.width, None if room.height is None else max(3, room.height - below))
    found.lines += gpus
    _engines(found, listed, room.width)
    if not engines:
        found.lines += [each for text in nobody(state) for each in paragraph(text, room.width)]
        if turned_away := refusals(state.link):
            found.lines += paragraph(turned_away, room.width, "yellow")
        found.lines.append(())
    elif not listed:
        found.lines += paragraph(f"No engine has {where.pattern!r}; escape clears the filter.", room.width)
    found.lines += _around(state, room.width)
    found.lines += _acting(state, room.width)
    return found


def _ordered(engines: list[Engine], where: Where) -> list[Engine]:
    order, backwards = where.order(NAME)
    keys = {
        "name": lambda each: each.who,
        "held": lambda each: -(each.held if each.held is not None else -1.0),
        "growth": lambda each: -(each.growth if each.growth is not None else -1e9),
        "waiting": lambda each: -(each.waiting if each.waiting is not None else -1),
    }
    name = ORDERS[order % len(ORDERS)]
    found = worst_first(engines) if name == "worst" else sorted(engines, key=keys[name])
    return found[::-1] if backwards else found


def _wrong(state: AgentState, cells: int, most: int | None) -> list[Line]:
    """Return what is wrong in at most so many lines: the worst in full, then as many heads as there is room for."""
    found: list[Line] = []
    if not state.ready:
        found += paragraph(f"agent not ready: {state.not_ready_reason}", cells, "page")
    found += [each for text in agent_troubles(state) for each in paragraph(text, cells, "yellow")]
    verdicts = loud(state)
    if not verdicts and not engines_of(state):
        return [*found, ()] if found else []
    if not verdicts:
        calm = "Nothing is wrong." if state.judgement is not None else "Nothing was judged yet."
        return [*found, line((calm, "good" if state.judgement is not None else "dim")), ()]
    return [*found, *shortened(verdicts, state.at, cells, None if most is None else most - len(found) - 1), ()]


def _gpus(state: AgentState, room: Room) -> list[Line]:
    if state.device is None:
        why = devices.absent(state)
        return [*paragraph(why, room.width, "dim"), ()] if why else []
    cards = [each for gpu in state.device.gpus for each in ((gpu, *gpu.instances) if gpu.instances else (gpu,))]
    if not cards:
        return [line(("The driver knows no GPU.", "dim")), ()]
    falls = {each.gpu: each for each in state.waterfalls}
    found: list[Line] = []
    tight = room.height is not None and len(cards) > max(2, room.height // 4)
    columns = max(1, (room.width + 1) // (HALF + 1)) if tight else 1
    cells = (room.width + 1) // columns - 1
    drawn = [_gpu(each, falls.get(each.gpu), cells, short=columns > 1) for each in cards]
    for first in range(0, len(drawn), columns):
        row: list[tuple[str, str]] = []
        for each in drawn[first : first + columns]:
            row += [*each, (" ", "")]
        found.append(tuple(row[:-1]))
    short = room.height is not None and room.height < LOW
    return [*found, *_legend(state.waterfalls, room.width, short=short), ()]


def _gpu(gpu: GpuState, fall: Waterfall | None, cells: int, *, short: bool) -> Line:
    label = pad(f"GPU {gpu.gpu}", 6 if short else 8)
    if not gpu.up:
        word = "LOST" if gpu.lost else "NOT ANSWERING"
        text = word if short else f"{word}: {gpu.lost or gpu.silent}"
        return cut_line(line((label, "label"), " ", (pad(text, cells - len(label) - 1), "bad")), cells)
    memory = gpu.memory
    used = "-" if memory is None else f"{memory.used / _GIB:.0f}/{memory.total / _GIB:.0f}G"
    busy = "busy -" if gpu.utilisation is None else f"busy {gpu.utilisation.gpu:.0%}"
    if short:
        numbers = f"{used:>8}"
    else:
        used = "size not known" if memory is None else f"{human_bytes(memory.used)} of {human_bytes(memory.total)}"
        share = f" {memory.used / memory.total:.0%}" if memory is not None and memory.total else ""
        numbers = f"{used}{share}  {busy:9}"
        if cells >= 120:
            numbers += f"  {pad((gpu.name or '').removeprefix('NVIDIA '), 20)}"
    size = max(6, cells - len(label) - len(numbers) - 2)
    if fall is not None and fall.total_bytes:
        drawn = bars.of_waterfall(fall, size)
    elif memory is not None:
        drawn = bars.bar((("=", "#0072b2", memory.used), (".", "grey50", memory.free)), memory.total, size)
    else:
        drawn = ((pad("memory not known", size), "dim"),)
    return cut_line((*line((label, "label"), " "), *drawn, *line(" ", numbers)), cells)


def _legend(waterfalls: Sequence[Waterfall], cells: int, *, short: bool) -> list[Line]:
    """Return the letters of the bars with their words, in as many lines as that takes."""
    gap = 1 if short else 2
    found: list[Line] = []
    row: list[tuple[str, str]] = []
    size = 0
    for letter, word, colour in bars.legend(waterfalls):
        text = f"{letter} {SHORT.get(word, word) if short else word}"
        if size and size + len(text) > cells:
            found.append(tuple(row[:-1]))
            row, size = [], 0
        row += [(text, colour), (" " * gap, "")]
        size += len(text) + gap
    return [*found, tuple(row[:-1])] if row else found


def _engines(found: Page, engines: Sequence[Engine], cells: int) -> None:
    if not engines:
        return
    columns = (
        Column("engine", 8, 1),
        Column("health", 6, right=True),
        Column("KV pool", 8, 2),
        Column("held", 5, right=True),
        Column("%/min", right=True),
        Column("full in", right=True),
        Column("run", right=True),
        Column("wait", right=True),
        Column("verdict", 12, 1),
    )
    rows = [_row(each) for each in engines]
    head, lines = table(columns, [cells_of for cells_of, _ in rows], cells - 1)
    found.lines.append(((" ", ""), *head))
    for engine, drawn, (_, quiet) in zip(engines, lines, rows, strict=True):
        shown = drawn
        if quiet:
            label = pad(engine.who.label, max(8, min(24, cells // 4)))
            shown = cut_line(line((label, ""), " ", (quiet, "yellow")), cells - 1)
        text = " ".join((engine.who.label, quiet, *(each.kind for each in engine.verdicts)))
        found.pick(((" ", ""), *shown), f"{engine.who.hooked}{engine.who.label}", text, engine.who)
    found.lines.append(())


def _row(engine: Engine) -> tuple[list[Cell], str]:
    """Return an engine's cells, and why it has none."""
    told = standing(engine)
    word = f"{tag_of(told[0])[0]} {told[0].kind}{f' +{len(told) - 1}' if len(told) > 1 else ''}" if told else "ok"
    style = tag_of(told[0])[1] if told else "good"
    number, tier = health_of(engine.health)
    pool = engine.state.pool if engine.state is not None else None
    held = engine.held

    def drawn(cells: int) -> Line:
        if pool is not None:
            return bars.of_pool(pool, cells)
        share = 0 if held is None else round(1000 * held)
        return (
            bars.bar((("#", "#0072b2", share), (".", "grey50", 1000 - share)), 1000, cells) if held is not None else ()
        )

    leak = "?" if pool is not None and pool.orphaned is not None and not pool.exact else ""
    row: list[Cell] = [
        engine.who.label if engine.who.hooked else f"{engine.who.label} (no hooks)",
        (number, tier),
        drawn,
        "-" if held is None else f"{held:.0%}{leak}",
        "-" if engine.growth is None else rate_of(engine.growth),
        "-" if engine.full_in is None else human_seconds(engine.full_in),
        "-" if engine.running is None else f"{engine.running:,}",
        "-" if engine.waiting is None else f"{engine.waiting:,}",
        (word, style),
    ]
    return row, engine.quiet


def _around(state: AgentState, cells: int) -> list[Line]:
    found: list[Line] = []
    previous = None
    gpus = devices.lines_of(state.device.gpus, state.at) if state.device is not None else []
    for label, text, style in (*gpus, *host.lines_of(state)):
        found += labelled("" if label == previous else label, text, cells, named(style), 14)
        previous = label
    return [line(("GPUs and host", "head")), *found, ()] if found else []


def _acting(state: AgentState, cells: int) -> list[Line]:
    actions = state.actions
    if actions is None:
        return []
    return [line(("actions", "head")), *standing_of(actions, cells), *feed_of(actions, cells, ACTIONS_SHOWN)]
