"""torch's allocator in a made-up process: what it holds for good, work that comes and goes, free blocks in pieces."""

from __future__ import annotations

from random import Random

from agent.state import AllocatorState, MemberState
from bench.corpus.clock import Tick
from bench.corpus.load import Noise, saw
from engine_hooks.allocator import (
    BAND_BOUNDS,
    AllocatorRow,
    DeviceRow,
    PoolRow,
    PrivatePoolRow,
    SegmentsRow,
    TagRow,
    WalkRow,
)
from engine_hooks.members import WorkerRow

GIB = 1 << 30
MIB = 1 << 20
WALK_SECONDS = 5.0


class Torch:
    """One process on one GPU. Sizes are bytes; what a scenario changes is public.

    ``fixed``: weights, KV cache, graphs. ``work``: the peak of what comes and goes with requests or steps; ``floor``:
    how much of it stays between them. ``kept``: more that is allocated, such as a leak. ``free_parts``: reserved and
    free beside what the work leaves; ``largest``: share of the largest free block.
    """

    def __init__(
        self,
        rng: Random,
        *,
        gpu: str = "0",
        pid: int = 0,
        weights: int = 15 * GIB,
        kv: int = 40 * GIB,
        graphs: int = 1200 * MIB,
        work: int = 600 * MIB,
        context: int = 500 * MIB,
        period: float = 0.0,
        sleeps: bool = False,
    ) -> None:
        self.rng = Random(rng.getrandbits(64))
        self.gpu, self.pid = gpu, pid or self.rng.randrange(2_000, 60_000)
        self.weights, self.kv, self.graphs, self.work, self.context = weights, kv, graphs, work, context
        self.period, self.sleeps, self.asleep = period, sleeps, False
        self.kv_blocks = 20_001
        self.residue = 0  # stays on the device although it sleeps
        self.kept = 0
        self.floor = 0.35
        self.free_parts = int(self.rng.uniform(60, 500)) * MIB
        self.largest = self.rng.uniform(0.15, 0.8)
        self.retries = self.ooms = 0
        self.loaded = 1.0  # share of what is fixed that is there, while it starts
        self.resident = int(self.rng.uniform(2.5, 8) * GIB)
        self.started_at = 0.0
        self._noise = Noise(self.rng, 0.12, 20.0)
        self._phase = self.rng.uniform(0, 300)
        self._now = self._peak = 0
        self._reserved = 0
        self._walk: WalkRow | None = None
        self._walked = -1e9

    @property
    def fixed(self) -> int:
        """Bytes that stay as long as the process lives."""
        return int((self.weights + self.kv + self.graphs) * self.loaded)

    @property
    def booked(self) -> int:
        """What the driver books on it."""
        gone = 0
        if self.asleep:
            gone = int((self.weights + self.kv) * self.loaded) - self.residue
        return self._reserved - gone + self.context

    def step(self, tick: Tick, busy: float = 0.5) -> None:
        """Let time pass; ``busy``: how much there is to do, 0..1."""
        share = self.floor + (1 - self.floor) * busy + self._noise.step(tick.elapsed)
        if self.period:
            share = self.floor + (1 - self.floor) * saw(tick.t + self._phase, self.period, 1.0) + self._noise.step(0.1)
        self._now = int(self.work * min(1.0, max(0.02, share)))
        self._peak = max(self._peak, self._now)
        free = max(self._peak - self._now, 0) + self.free_parts
        self._reserved = self.fixed + self.kept + self._now + free
        if tick.t - self._walked >= WALK_SECONDS:
            self._walked = tick.t
            self._walk = self._walked_now(tick, free)

    def _walked_now(self, tick: Tick, free: int) -> WalkRow:
        active = self.fixed + self.kept + self._now
        largest = int(free * min(1.0, max(0.01, self.largest + self.rng.gauss(0, 0.01))))
        blocks, sizes = _bands(free, largest)
        large = PoolRow(
            kind="large",
            segments=40,
            reserved_bytes=active - self.graphs + free,
            active_bytes=max(0, active - self.graphs),
            free_bytes=free,
            largest_free_bytes=largest,
        )
        private = [
            PrivatePoolRow(pool="0.1", segments=6, reserved_bytes=self.graphs, active_bytes=self.graphs * 4 // 5)
        ]
        if self.sleeps:
            private += [
                PrivatePoolRow(pool=f"1.{n}", segments=1, reserved_bytes=size, active_bytes=size, tags=tag)
                for n, (tag, size) in enumerate((("weights", self.weights), ("kv_cache", self.kv)))
            ]
        row = SegmentsRow(
            device=0,
            segments=60,
            blocks=400,
            reserved_bytes=active + free,
            active_bytes=active,
            free_bytes=free,
            largest_free_bytes=largest,
            whole_free_bytes=min(free, largest) // 2,
            band_blocks=blocks,
            band_bytes=sizes,
            streams=2,
            expandable_segments=0,
            expandable_bytes=0,
            pools=(large,),
            private=tuple(private),
        )
        return WalkRow(monotonic=tick.monotonic, seconds=0.003, period_seconds=WALK_SECONDS, devices=(row,))

    def allocator(self, tick: Tick) -> AllocatorState:
        """Return what the agent knows of it."""
        active = self.fixed + self.kept + self._now
        row = DeviceRow(
            device=0,
            uuid=f"GPU-{self.gpu}",
            allocated_bytes=active,
            allocated_peak_bytes=self.fixed + self.kept + self._peak,
            reserved_bytes=self._reserved,
            reserved_peak_bytes=self._reserved,
            active_bytes=active,
            requested_bytes=int(active * 0.999),
            inactive_split_bytes=self.free_parts * 3 // 4,
            private_reserved_bytes=self.graphs + (self.weights + self.kv if self.sleeps else 0),
            retries_total=self.retries,
            ooms_total=self.ooms,
            device_allocs_total=60,
            device_frees_total=3 * self.retries,
        )
        return AllocatorState(
            row=AllocatorRow(
                backend="native",
                expandable_segments=False,
                fields=18,
                devices=(row,),
                walk=self._walk,
                tags=self._tags() if self.sleeps else (),
            ),
            walk_age_seconds=tick.t - self._walked,
            history=None,
        )

    def _tags(self) -> tuple[TagRow, ...]:
        return tuple(
            TagRow(
                tag=tag,
                device=0,
                allocations=9,
                bytes=size,
                mapped_bytes=0 if self.asleep else size,
                backed_up_bytes=size if self.asleep and tag == "weights" else 0,
            )
            for tag, size in (("weights", self.weights), ("kv_cache", self.kv))
        )

    def worker(self, tick: Tick, rank: int = 0) -> MemberState:
        """Return it as rank ``rank`` of an engine."""
        row = WorkerRow(
            tensor_parallel_rank=rank,
            pipeline_parallel_rank=0,
            device=f"cuda:{rank}",
            device_uuid=f"GPU-{self.gpu}",
            kv_bytes=self.kv,
            kv_blocks=self.kv_blocks,
            parameter_bytes=self.weights,
        )
        return self._member(tick, "worker", rank, "", row)

    def trainer(self, tick: Tick, name: str) -> MemberState:
        """Return it as a PyTorch process of its own."""
        return self._member(tick, "torch", 0, name, None)

    def _member(self, tick: Tick, role: str, rank: int, process: str, worker: WorkerRow | None) -> MemberState:
        return MemberState(
            role=role,
            rank=rank,
            pid=self.pid,
            own_pid=self.pid,
            pid_namespace=4026531836,
            host="node",
            started_at=self.started_at,
            up=True,
            link_up=True,
            heard_age_seconds=0.4,
            resident_bytes=self.resident,
            worker=worker,
            frontend=None,
            allocator=self.allocator(tick),
            process=process,
            instance=f"p{self.pid}",
        )


def _bands(free: int, largest: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split ``free`` into one block of ``largest`` and others a third as large, by size."""
    blocks, sizes = [0] * (len(BAND_BOUNDS) + 1), [0] * (len(BAND_BOUNDS) + 1)

    def put(size: int, number: int) -> None:
        band = next((n for n, bound in enumerate(BAND_BOUNDS) if size <= bound), len(BAND_BOUNDS))
        blocks[band] += number
        sizes[band] += size * number

    if largest > 0:
        put(largest, 1)
        small = max(2 * MIB, largest // 3)
        put(small, max(0, (free - largest) // small))
    return tuple(blocks), tuple(sizes)
