"""Nodes whose engine has no hooks: only its page is read, by the code that reads them live."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from agent.sources.scrape.engines import Engines
from agent.sources.scrape.families import Reading
from agent.sources.scrape.history import History
from agent.sources.scrape.page import Rejected, RowKey
from agent.sources.scrape.scraper import Report, Seen
from agent.sources.scrape.state import ScrapedEngine
from agent.sources.scrape.targets import Target, TargetKey
from bench.corpus.clock import Clock, Tick
from bench.corpus.engine import Engine
from bench.corpus.healthy import Serving


class Page:
    """The page of an engine, read each ``period`` seconds; ``bend`` changes what is on it."""

    def __init__(self, rng: Random, engine: Engine, period: float) -> None:
        self.rng, self.engine, self.period = Random(rng.getrandbits(64)), engine, period
        self.bend: Callable[[dict[str, float | None]], None] = lambda values: None
        self.down = self.bad_page = ""
        self._history = History()
        self._report = Report(phase="down", reason="not read yet", rows={})
        self._read = -1e9
        self._bad: dict[str, int] = {}
        self._key = RowKey("vllm", "s", "0", "")
        self._info = {"num_gpu_blocks": str(engine.capacity + 1), "block_size": "16"}
        # To the source's own code this is the reader of one server.
        self._targets: dict[TargetKey, Target] = {("s",): Target(scraper=self, url="http://127.0.0.1:8000", name="s")}  # type: ignore[arg-type]
        self._engines = Engines()

    def values(self) -> dict[str, float | None]:
        """Return what the engine would write."""
        engine = self.engine
        asked = sum(tenant.prompt_tokens for tenant in engine.tenants)
        hit = sum(tenant.prompt_tokens * tenant.reuse for tenant in engine.tenants)
        return {
            "usage": min(1.0, (engine.used + engine.kept) / engine.capacity),
            "running": float(len(engine.running)),
            "waiting": float(len(engine.waiting) + engine.unfit),
            "preemptions": float(engine.preempted),
            "prompt_tokens": float(asked),
            "generation_tokens": float(int(sum(tenant.generated for tenant in engine.tenants))),
            "prefix_queries": float(asked),
            "prefix_hits": float(int(hit)),
        }

    def state(self, tick: Tick) -> ScrapedEngine:
        """Return what is known of the engine at ``tick``."""
        if tick.t - self._read >= self.period - 0.01:
            self._read = tick.t
            self._scrape(tick)
        (engine,), _ = self._engines.of(self._targets, tick.monotonic)
        return engine

    def report(self) -> Report:
        """Return what is known now."""
        return self._report

    def _scrape(self, tick: Tick) -> None:
        before = self._report
        if self.down or self.bad_page:
            self._report = Report(
                phase="down" if self.down else "bad_page",
                reason=self.down or self.bad_page,
                rows=before.rows,
                scrapes=before.scrapes + 1,
                failures=before.failures + 1,
                taken=before.taken,
            )
            return
        values = self.values()
        self.bend(values)
        rejected = []
        for name, value in values.items():
            if value is not None and (value < 0 or (name == "usage" and value > 1)):
                rejected.append(Rejected(name, value, "negative" if value < 0 else "above_one"))
                self._bad[rejected[-1].reason] = self._bad.get(rejected[-1].reason, 0) + 1
                values[name] = None
        reading = Reading(**values)
        trend = self._history.add(tick.monotonic, reading)
        self._report = Report(
            phase="up",
            reason="",
            rows={self._key: Seen(reading, trend, self._info, tuple(rejected), dict(self._bad))},
            scrapes=before.scrapes + 1,
            failures=before.failures,
            seconds=0.01,
            taken=tick.monotonic,
        )


class Hookless(Serving):
    """A node whose only engine has a page and no hooks."""

    def __init__(
        self, rng: Random, clock: Clock, *, load: float | None = None, period: float | None = None, **more: object
    ) -> None:
        super().__init__(rng, clock, load=load, **more)  # type: ignore[arg-type]
        self.engine.name = "s"
        for process in self.processes:
            process.engine = "s"
        self.cgroup.engine = "s"
        self.workers["s"] = self.workers.pop("m")
        self.page = Page(
            rng, self.engine, max(clock.period, rng.choice((1.0, 1.0, 5.0, 15.0)) if period is None else period)
        )
        self.pages.append(self.page.state)
        self.hookless = True
