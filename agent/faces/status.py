"""The state as rich renderables: what ``kvtide status`` prints and the demo shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent.faces import actions, allocator, detail, devices, grid, host, scraped, signals
from agent.faces import verdict_block as verdicts
from agent.faces.lines import BAD
from agent.faces.verdicts import of_engine, pointer
from agent.faces.words import nobody, refusals
from agent.oom.log import Failure
from agent.retained import peers_of
from agent.state import AgentState, EngineState, PoolState
from agent.units import human_bytes, human_seconds
from engine_hooks.members import FRONTEND, WORKER

BAR_WIDTH = 40
# Colours of Okabe and Ito, told apart by the colour-blind; the letters carry the meaning without any colour. The parts
# do not overlap; in the table, what is orphaned is held, too.
_PARTS = (
    ("orphaned", "L", BAD),
    ("held by requests", "#", "#0072b2"),
    ("cached idle", "+", "#56b4e9"),
    ("empty", ".", "grey50"),
)


def render(state: AgentState) -> RenderableType:
    """Return the whole picture: verdicts, then engines, then what is around them."""
    parts: list[RenderableType] = []
    if not state.ready:
        parts.append(Text(f"agent not ready: {state.not_ready_reason}", style="bold #d55e00"))
    if (judged := verdicts.block(state)) is not None:
        parts.append(judged)
    if not state.engines:
        parts += [Text(line) for line in nobody(state)]
        if turned_away := refusals(state.link):
            parts.append(Text(turned_away, style="yellow"))
    if (acting := actions.block(state)) is not None:
        parts.append(acting)
    peers = peers_of((engine.engine, engine.detail) for engine in state.engines)
    for engine in state.engines:
        failed = [failure for failure in state.failures if failure.engine == engine.engine]
        parts.append(_engine(engine, state, peers, failed))
    engines = {engine.engine for engine in state.engines}
    others = [failure for failure in state.failures if failure.engine not in engines]
    if processes := grid.table(
        [*allocator.failures(others, state.at), *allocator.lines(state.processes, gpus=devices.any_gpu(state))]
    ):
        parts.append(Panel(processes, title=Text("processes"), title_align="left", border_style="grey50"))
    if without_hooks := scraped.render(state):
        parts.append(without_hooks)
    if gpus := devices.render(state):
        parts.append(gpus)
    if about_host := host.panel(state):
        parts.append(about_host)
    return Group(*parts)


def _engine(
    engine: EngineState, state: AgentState, peers: Mapping[str, str], failed: Sequence[Failure]
) -> RenderableType:
    now = state.at
    # Text, for a plain string would be read as rich markup.
    title = Text(f"{engine.engine}  vLLM {engine.engine_version}  pid {engine.pid}  {engine.phase}")
    if engine.phase != "live":
        quiet: list[RenderableType] = [Text(f"No values: {engine.reason}.")]
        if fallen := grid.table([*allocator.failures(failed, now)]):
            quiet.append(fallen)
        return Panel(Group(*quiet), title=title, title_align="left", border_style="yellow")
    told = detail.lines_of(engine.detail, peers) if engine.detail else []
    memory = [*allocator.failures(failed, now), *allocator.lines(engine.members, gpus=devices.any_gpu(state))]
    standing = of_engine(engine)
    bad = bool(standing) or any(line.style == BAD for line in [*told, *memory])
    body: list[RenderableType] = []
    if standing:
        body.append(Text(pointer(standing), style=f"bold {BAD}"))
    elif not bad:
        body.append(Text("Nothing is wrong.", style="#009e73"))
    if over_time := grid.table([*signals.lines(state, engine.engine)]):
        body.append(over_time)
    if engine.pool is not None:
        body += [_bar(engine.pool), _legend(), _numbers(engine, engine.pool)]
    else:
        body.append(Text("This engine has no KV block pool."))
    if not engine.audit_supported:
        body.append(Text(f"No exact accounting: {engine.audit_reason}.", style="yellow"))
    if engine.detail and (block := grid.block(engine.detail, told)):
        body.append(block)
    if torch := grid.table(memory):
        body.append(torch)
    if members := _members(engine):
        body.append(Text(members))
    body += [_hooks(engine)]
    return Panel(Group(*body), title=title, title_align="left", border_style=BAD if bad else "#009e73")


def _bar(pool: PoolState) -> Text:
    leaked = min(pool.orphaned or 0, pool.held)
    cached = pool.cached_idle or 0
    counts = {"orphaned": leaked, "held by requests": pool.held - leaked, "cached idle": cached}
    cells = {name: _cells(number, pool.capacity) for name, number in counts.items()}
    widest = max(cells, key=lambda name: cells[name])
    cells[widest] -= max(0, sum(cells.values()) - BAR_WIDTH)  # what rounding up has added
    cells["empty"] = BAR_WIDTH - sum(cells.values())
    text = Text("KV pool ")
    for name, letter, colour in _PARTS:
        text.append(letter * cells[name], style=colour)
    text.append(f"  {pool.held / pool.capacity:.0%} held" if pool.capacity else "  empty pool")
    return text


def _legend() -> Text:
    text = Text("        ")
    for name, letter, colour in _PARTS:
        text.append(f"{letter} {name}  ", style=colour)
    return text


def _cells(number: int, capacity: int) -> int:
    """Cells of the bar for ``number`` blocks: one at least, so that a single leaked block is seen."""
    return min(BAR_WIDTH, max(1, round(BAR_WIDTH * number / capacity))) if number > 0 and capacity > 0 else 0


def _numbers(engine: EngineState, pool: PoolState) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=True, header_style="bold")
    columns = (
        ("held", pool.held),
        ("of it\norphaned", pool.orphaned),
        ("cached idle", pool.cached_idle),
        ("empty", pool.empty),
        ("capacity", pool.capacity),
    )
    for name, _ in columns:
        table.add_column(name, justify="right", vertical="bottom")  # in one line it is too wide
    table.add_column("running", justify="right")
    table.add_column("waiting", justify="right")
    blocks = [_count(number) for _, number in columns]
    if pool.orphaned is not None and not pool.exact:
        blocks[1] += "?"  # counted, the blocks are not named yet
    table.add_row(*blocks, _count(engine.running), _count(engine.waiting))
    if pool.block_bytes is not None:
        sizes = [pool.bytes_of(number) for _, number in columns]
        table.add_row(*("-" if size is None else human_bytes(size) for size in sizes), "", "", style="dim")
    return table


def _count(number: int | None) -> str:
    return "not known" if number is None else f"{number:,}"


def _members(engine: EngineState) -> str:
    """How many workers and API servers report, of how many; nothing where none does and none is expected."""
    ranks = _share("ranks", engine.up(WORKER), engine.workers_expected)
    if ranks and engine.world_size is not None and engine.world_size != engine.workers_expected:
        ranks += f" here, {engine.world_size} on all nodes"
    servers = _share("api servers", engine.up(FRONTEND), engine.frontends_expected)
    return ", ".join(filter(None, (ranks, servers)))


def _share(words: str, number: int, expected: int | None) -> str:
    if expected is None:
        return f"{words} {number}" if number else ""
    return f"{words} {number}/{expected}"


def _hooks(engine: EngineState) -> Text:
    hooks = engine.hooks
    age = "" if engine.report_age_seconds is None else f"reported {human_seconds(engine.report_age_seconds)} ago"
    text = Text(age, style="dim")
    if hooks is None:
        return text
    if hooks.step_seconds:
        text.append(f"; hooks cost {hooks.hook_seconds / hooks.step_seconds:.2%} of the engine's step time")
    if hooks.dropped_frames:
        text.append(f"; {hooks.dropped_frames} frames dropped")
    for hook, reason in hooks.off.items():
        text.append(f"; hook {hook} is off: {reason}", style="yellow")
    return text
