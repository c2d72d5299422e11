"""Where a history comes from, for the commands that judge one: bundles, a recorder's folder, a Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import ConfigError

if TYPE_CHECKING:
    from agent.backtest.prometheus.feed import Asked
    from agent.backtest.run import Feed
    from agent.bundle.format import Usuals
    from agent.state import AgentState

_TELL_SECONDS = 0.5


@contextmanager
def progress() -> Iterator[Callable[[str, AgentState | Usuals], None]]:
    """Show on a terminal's standard error how far it has come: two weeks take minutes."""
    import time

    from rich.markup import escape

    from agent.backtest.span import shown
    from agent.faces.terminal import Terminal
    from agent.state import AgentState

    terminal = Terminal(stderr=True)
    if not terminal.is_terminal:
        yield lambda *_: None
        return
    with terminal.status("Judging...") as status:
        told = 0.0

        def tell(name: str, record: AgentState | Usuals) -> None:
            nonlocal told
            if isinstance(record, AgentState) and time.monotonic() - told >= _TELL_SECONDS:
                told = time.monotonic()
                status.update(f"Judging {escape(name)}: {shown(record.at)}")

        yield tell


@contextmanager
def old_news() -> Iterator[None]:
    """Keep the agent's log to errors: what it tells of states of long ago is no news."""
    import logging

    logger = logging.getLogger("kvtide.agent")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class Reach(NamedTuple):
    """How a Prometheus is reached. ``timeout``: seconds for one answer."""

    ca_file: Path | None
    token_file: Path | None
    timeout: float


def asked_for(span: str, step: str, select: str, metrics: str) -> Asked:
    """Return what is asked of a Prometheus, from what a user wrote; raises :class:`ConfigError`."""
    import time

    from agent.backtest.prometheus.feed import METRICS, Asked
    from agent.backtest.span import seconds_of, span_of

    chosen = next((each for each in METRICS if each == metrics), None)
    if chosen is None:
        raise ConfigError(f"--metrics: {metrics!r}: must be one of {', '.join(METRICS)}")
    return Asked(span_of(span, time.time()), seconds_of(step, "--step"), select, chosen)


def open_feeds(sources: Sequence[str], asked: Asked, reach: Reach, stack: ExitStack) -> list[Feed]:
    """Return the feeds of ``sources``: files, folders of a recorder, URLs. ``stack`` closes what they hold open."""
    from agent.backtest.bundles import BundleFeed, RecorderFeed

    feeds: list[Feed] = []
    for source in sources:
        if "://" in source:
            from agent.backtest.prometheus.client import Prometheus
            from agent.backtest.prometheus.feed import PrometheusFeed

            prometheus = Prometheus(source, timeout=reach.timeout, ca_file=reach.ca_file, token_file=reach.token_file)
            stack.callback(prometheus.close)
            feeds.append(PrometheusFeed(prometheus, asked))
        elif Path(source).is_dir():
            feeds.append(RecorderFeed(Path(source), asked.span))
        else:
            feeds.append(BundleFeed(Path(source)))
    return feeds
