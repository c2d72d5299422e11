"""Health scores, 0..100 (DESIGN section 6).

    headroom = (reclaimable free - reserve) / total
    score    = 100 * clamp(headroom / comfortable, 0, 1) - fragmentation penalty - leak penalty

What is free of a KV pool is the mean of the last half minute: under load a small pool is full and half empty within
seconds, and a score that jumps between 0 and 80 tells nobody anything.

Without harm in the last minute the first term takes the score no lower than 60: a full pool that serves is not ill.
Where nobody knows of harm, and the first term is lower than that, there is no score: it may be either. The textbook
profile drops that rule. The textbook's form, (free - reserve) / total * 100 - penalties on a device's raw memory, is a
score of its own, under its own name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.policy.types import Policy
from agent.signals.gpus import KV_FREE, by_name, units_of
from agent.signals.types import AllocatorSignals, NodeSignals, Score
from agent.sources.device.state import GpuState
from agent.sources.host.state import CgroupState, HostState
from agent.state import AgentState, Verdict
from agent.subject import Subject
from agent.waterfall.owners import bare
from agent.waterfall.state import Waterfall

KVTIDE, TEXTBOOK = "kvtide", "textbook"
KV, DEVICE, HOST, ENGINE = "kv", "device", "host", "engine"
WARNING, SEVERE, EMERGENCY = "warning", "severe", "emergency"
UNHARMED = 60.0

FRAGMENTED = 0.20  # no penalty up to there
PER_FRAGMENTED = 100.0  # points for all of it: 20 at 40 %
MOST_FRAGMENTED = 40.0
LEAST_FREE = 0.01  # of the device: what is free in torch's hands below that is no matter, however it is cut
PER_LEAKED = 200.0
CONFIRMED_LEAK = 10.0
MOST_LEAKED = 50.0

# What torch has and nobody uses, and KV blocks that nothing holds: given or used again at once.
RECLAIMABLE = ("free", *KV_FREE, "torch_inactive")
# A pool that nobody splits, and processes that do not say what they hold: a pool with room may be in them.
OPAQUE = ("kv_unsplit", "untold", "other_processes")
MOST_OPAQUE = 0.10
LEAKS = {
    KV: ("kv_orphan", "kv_delayed_free", "kv_pinned", "spec_residue"),
    DEVICE: ("device_growth", "allocator_growth", "dead_process_memory", "sleep_residue"),
    HOST: ("host_growth",),
}
PRESSED = 0.10  # of the time somebody waited for the host's memory


def scores(state: AgentState, signals: NodeSignals, verdicts: tuple[Verdict, ...], policy: Policy) -> tuple[Score, ...]:
    """Return the scores of each KV pool, GPU and host, and the least of them per engine, in both forms.

    What is not known has no score: a GPU whose memory nobody splits, a host that is not read.
    """
    maker = _Maker(state, signals, verdicts, policy)
    parts = [*maker.pools(), *maker.devices(), *maker.hosts()]
    return (*parts, *maker.engines(parts))


class _Maker:
    def __init__(self, state: AgentState, signals: NodeSignals, verdicts: Iterable[Verdict], policy: Policy) -> None:
        self._state, self._signals, self._policy = state, signals, policy
        self._unknown: set[tuple[str, str]] = set()  # engine and GPU of what has no score, since harm isn't known
        self._gpus_of: dict[str, set[str]] = {}
        self._allocators: dict[str, list[AllocatorSignals]] = {}
        units = by_name(state)
        for each in signals.allocators:
            self._allocators.setdefault(each.gpu, []).append(each)
        for engine in state.engines:
            names = {bare(member.worker.device_uuid) for member in engine.members if member.worker} - {""}
            self._gpus_of[engine.engine] = {units[name].gpu for name in names if name in units}
        leaks = [verdict for verdict in verdicts if verdict.phase == "confirmed" and verdict.tier != "note"]
        self._leaking = {
            scope: {
                where
                for verdict in leaks
                if verdict.kind in kinds
                for where in (self._on(verdict.subject) if scope == DEVICE else (verdict.subject.engine,))
            }
            for scope, kinds in LEAKS.items()
        }

    def _on(self, subject: Subject) -> Iterable[str]:
        """Return the GPUs that a verdict is about, whatever it is a verdict on."""
        if subject.gpu:
            return (subject.gpu,)
        if subject.scope != "process":
            return self._gpus_of.get(subject.engine, ())
        rows = self._signals.allocators
        return {
            row.gpu
            for row in rows
            if row.engine == subject.engine and subject.process in (row.process, f"{row.role}/{row.rank}")
        }

    # -- each ----------------------------------------------------------------------------------------------

    def pools(self) -> Iterator[Score]:
        """Yield the score of each KV pool. A fixed pool has no fragmentation: its blocks are interchangeable."""
        orphaned = {each.engine: each.pool.orphaned for each in self._state.engines if each.pool}
        capacity = {each.engine: each.pool.capacity for each in self._state.engines if each.pool}
        seen: set[str] = set()
        for each in sorted(self._signals.engines, key=lambda one: not one.hooked):
            if each.engine in seen or each.use_ratio is None:
                continue
            seen.add(each.engine)
            lost, whole = orphaned.get(each.engine), capacity.get(each.engine)
            leaked = lost / whole if each.hooked and lost and whole else 0.0
            confirmed = each.engine in self._leaking[KV]
            use = each.use_ratio if each.use_mean_ratio is None else each.use_mean_ratio
            yield from self._score(KV, 1 - use, engine=each.engine, harm=each.harm, leaked=leaked, confirmed=confirmed)

    def devices(self) -> Iterator[Score]:
        """Yield both forms of each GPU. Ours needs to know what of it is a KV pool."""
        falls = {fall.gpu: fall for fall in self._state.waterfalls}
        kv_free = {each.gpu: each.kv_free_mean_bytes for each in self._signals.gpus}
        for unit in units_of(self._state):
            memory = unit.memory
            if memory is None or memory.total <= 0:
                continue
            fragmentation, harm = self._torch(unit.gpu, memory.total)
            leaked = self._dead(unit.gpu) / memory.total
            confirmed = unit.gpu in self._leaking[DEVICE]
            reclaimable = self._reclaimable(falls.get(unit.gpu), memory.total, kv_free.get(unit.gpu))
            if reclaimable is not None:
                yield from self._score(
                    DEVICE,
                    reclaimable / memory.total,
                    gpu=unit.gpu,
                    harm=harm,
                    fragmentation=fragmentation,
                    leaked=leaked,
                    confirmed=confirmed,
                )
            yield self._textbook(unit, fragmentation, leaked, confirmed)

    def hosts(self) -> Iterator[Score]:
        """Yield the score of the host, and of each engine whose cgroup has a limit."""
        host = self._state.host
        if host is None:
            return
        memory = host.memory or {}
        total, available = memory.get("total"), memory.get("available")
        if total and available is not None:
            confirmed = bool(self._leaking[HOST])  # whichever process it is that grows, it takes the host's memory
            harm = _harmed(_killed(self._state, host, ""), _pressed(host.cgroups))
            yield from self._score(HOST, available / total, harm=harm, confirmed=confirmed)
        for engine in dict.fromkeys(each.engine for each in host.cgroups):
            groups = [each for each in host.cgroups if each.engine == engine]
            free = [share for share in map(_free_of, groups) if share is not None]
            if free:
                confirmed = engine in self._leaking[HOST]
                harm = _harmed(_killed(self._state, host, engine), _pressed(groups))
                yield from self._score(HOST, min(free), engine=engine, harm=harm, confirmed=confirmed)

    def engines(self, parts: Iterable[Score]) -> Iterator[Score]:
        """Yield the least score of what concerns each engine: its pool, its GPUs, its cgroups and the host."""
        names = list(dict.fromkeys(each.engine for each in self._signals.engines))
        on: dict[str, list[str]] = {}
        for name in names:
            for gpu in self._gpus_of.get(name, ()):
                on.setdefault(gpu, []).append(name)
        worst: dict[tuple[str, str], Score] = {}
        for part in parts:
            of_host = part.scope == HOST and not part.engine
            for name in names if of_host else on.get(part.gpu, ()) if part.gpu else (part.engine,):
                known = worst.get((name, part.form))
                if known is None or part.value < known.value:
                    worst[name, part.form] = part
        for name in names:
            # The least of them may be one that nobody knows.
            concerns = {("", ""), (name, ""), *(("", gpu) for gpu in self._gpus_of.get(name, ()))}
            for form in (KVTIDE, TEXTBOOK):
                least = worst.get((name, form))
                if least is not None and (form == TEXTBOOK or not concerns & self._unknown):
                    yield Score(
                        scope=ENGINE,
                        engine=name,
                        gpu=least.gpu,
                        form=form,
                        value=least.value,
                        headroom=least.headroom,
                        fragmentation_penalty=least.fragmentation_penalty,
                        leak_penalty=least.leak_penalty,
                        harm=least.harm,
                        tier=least.tier,
                    )

    # -- both forms ----------------------------------------------------------------------------------------

    def _score(
        self,
        scope: str,
        free: float,
        *,
        engine: str = "",
        gpu: str = "",
        harm: bool | None,
        fragmentation: float | None = None,
        leaked: float = 0.0,
        confirmed: bool = False,
    ) -> Iterator[Score]:
        policy = self._policy.score
        headroom = free - policy.reserve_ratio
        term = 100 * _clamp(headroom / policy.comfortable_ratio)
        if self._policy.profile != "textbook" and term < UNHARMED and not harm:
            if harm is None:
                self._unknown.add((engine, gpu))
                return
            term = UNHARMED
        cut, leak = fragmentation_penalty(fragmentation), leak_penalty(leaked, confirmed)
        value = max(0.0, term - cut - leak)
        yield Score(
            scope=scope,
            engine=engine,
            gpu=gpu,
            form=KVTIDE,
            value=value,
            tier=self._tier(value),
            headroom=headroom,
            fragmentation_penalty=cut,
            leak_penalty=leak,
            harm=harm,
        )

    def _textbook(self, unit: GpuState, fragmentation: float | None, leaked: float, confirmed: bool) -> Score:
        memory = unit.memory
        headroom = memory.free / memory.total - self._policy.score.reserve_ratio if memory else 0.0
        cut, leak = fragmentation_penalty(fragmentation), leak_penalty(leaked, confirmed)
        value = max(0.0, 100 * _clamp(headroom) - cut - leak)
        return Score(
            scope=DEVICE,
            engine="",
            gpu=unit.gpu,
            form=TEXTBOOK,
            value=value,
            tier=self._tier(value),
            headroom=headroom,
            fragmentation_penalty=cut,
            leak_penalty=leak,
        )

    def _tier(self, value: float) -> str:
        policy = self._policy.score
        if value < policy.emergency_below:
            return EMERGENCY
        if value < policy.severe_below:
            return SEVERE
        return WARNING if value < policy.warn_below else ""

    # -- what it is made of --------------------------------------------------------------------------------

    def _torch(self, gpu: str, whole: int) -> tuple[float | None, bool | None]:
        """Return the worst fragmentation that matters on a GPU, and whether torch had to try again or failed."""
        here = self._allocators.get(gpu)
        if not here:
            return None, None
        cut = [
            each.fragmentation
            for each in here
            if each.fragmentation is not None and (each.free_bytes or 0) >= LEAST_FREE * whole
        ]
        told = [each.retries_per_minute > 0 for each in here if each.retries_per_minute is not None]
        return max(cut, default=None), any(told) if told else None

    def _reclaimable(self, fall: Waterfall | None, whole: int, kv_free: float | None) -> float | None:
        """Return the free bytes and those that can be had at once; None where too little is known to say so.

        ``kv_free``: what of KV pools is free, over a time; None for that of the moment.
        """
        if fall is None or fall.total_bytes is None:
            return None
        reclaimable, opaque = kv_free or 0.0, 0
        for part in fall.parts:
            if part.part in KV_FREE and kv_free is not None:
                continue
            if part.part in RECLAIMABLE:
                reclaimable += part.bytes
            elif part.part in OPAQUE:
                opaque += part.bytes
        policy = self._policy.score
        short = reclaimable < (policy.reserve_ratio + policy.comfortable_ratio) * whole
        return None if short and opaque > MOST_OPAQUE * whole else min(reclaimable, whole)

    def _dead(self, gpu: str) -> int:
        host = self._state.host
        return (host.dead_bytes or {}).get(gpu, 0) if host else 0


def fragmentation_penalty(ratio: float | None) -> float:
    """Return points off: none up to 20 %, 20 at 40 %, 40 at most."""
    return 0.0 if ratio is None else min(MOST_FRAGMENTED, max(0.0, PER_FRAGMENTED * (ratio - FRAGMENTED)))


def leak_penalty(leaked: float, confirmed: bool) -> float:
    """Return points off: two for each leaked percent, at least 10 once a leak is confirmed, 50 at most."""
    return min(MOST_LEAKED, max(PER_LEAKED * leaked, CONFIRMED_LEAK if confirmed else 0.0))


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, value))


def _free_of(group: CgroupState) -> float | None:
    if not group.limit_bytes or group.limit_current_bytes is None:
        return None
    idle = 0
    if group.current_bytes is not None and group.working_set_bytes is not None:
        idle = max(0, group.current_bytes - group.working_set_bytes)
    return (group.limit_bytes - group.limit_current_bytes + idle) / group.limit_bytes


def _pressed(groups: Iterable[CgroupState]) -> bool | None:
    told = [group.pressure.full_ratio > PRESSED for group in groups if group.pressure is not None]
    return any(told) if told else None


def _killed(state: AgentState, host: HostState, engine: str) -> bool | None:
    """Return whether a process of ``engine`` (of any) was killed for memory in the last minute; None: not known."""
    if any(
        state.at - each.at <= 60.0 for each in host.killed if each.certain and (not engine or each.engine == engine)
    ):
        return True
    counted = host.oom_kills_total is not None or host.kills_total
    return False if counted else None


def _harmed(*told: bool | None) -> bool | None:
    """Return whether one of them tells of harm; None where none tells anything."""
    known = [each for each in told if each is not None]
    return any(known) if known else None
