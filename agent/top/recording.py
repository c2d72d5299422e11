"""A bundle's states, judged again as they were live, kept small so that a replay can go to any moment at once."""

from __future__ import annotations

import threading
import time
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import msgspec

from agent.bundle.format import Bundle, read
from agent.errors import KvtideError
from agent.judged import judged
from agent.policy.types import DEFAULT, Policy
from agent.replay.fold import Fold
from agent.state import AgentState
from agent.top.history import MOST_MOMENTS, History, Moment, moment_of

MOST_BYTES = 96 << 20  # of all states, packed
POINT_BYTES = 120  # what a point of a moment takes, about
BREATH_SECONDS = 0.002  # after each state, so that the screen gets its turn

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AgentState)


class Recording:
    """Reads the bundle at ``path`` on a thread; what was read so far can be looked at.

    Where it is longer than there is memory for, every second state is let go, again and again: ``thinned`` says how
    many states one stands for. ``problem``: why the rest could not be read. Raises :class:`KvtideError` for what is no
    bundle.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._bundle: Bundle = read(path)
        self._most = most_bytes
        self._lock = threading.Lock()
        self._times: list[float] = []
        self._packed: list[bytes] = []
        self._moments: list[Moment] = []
        self._bytes = 0
        self._read = 0
        self._began: float | None = None
        self._shift = 0.0
        self.thinned = 1
        self.loading = True
        self.problem = ""
        self._decoded: tuple[bytes, AgentState] | None = None

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self.load, args=(BREATH_SECONDS,), name="kvtide-replay", daemon=True).start()

    def load(self, breath: float = 0.0) -> None:
        """Read all of it."""
        try:
            for state in self._states():
                self._take(state)
                if breath:
                    time.sleep(breath)
            self.problem = f"The file is not whole: {self._bundle.torn}." if self._bundle.torn else ""
        except KvtideError as error:
            self.problem = str(error)
        except Exception as error:  # a file can say anything
            self.problem = f"The rest can't be read: {type(error).__name__}: {error}"
        self.loading = False

    def __len__(self) -> int:
        return len(self._times)

    @property
    def length(self) -> float:
        """Seconds from the first state to the last that was read."""
        return self._times[-1] if self._times else 0.0

    def at(self, position: float) -> tuple[AgentState, History] | None:
        """Return the state at ``position`` seconds with what was before it; None where none was read."""
        with self._lock:
            place = bisect_right(self._times, position) - 1
            if not self._times:
                return None
            place = max(0, place)
            packed, moments = self._packed[place], self._moments[max(0, place + 1 - MOST_MOMENTS) : place + 1]
        if self._decoded is None or self._decoded[0] is not packed:
            self._decoded = packed, _decoder.decode(zlib.decompress(packed))
        history = History()
        for each in moments:
            history.take(each)
        return self._decoded[1], history

    def _states(self) -> Iterator[AgentState]:
        told = self._bundle.header.policy
        try:
            policy = Policy.model_validate_json(told) if told else DEFAULT
        except ValueError:  # of a version with other thresholds
            policy = DEFAULT
        for state, judgement in Fold(policy).judgements(self._bundle.records()):
            yield judged(state, judgement)

    def _take(self, state: AgentState) -> None:
        """Keep a state. The clock of an agent that was restarted goes on where the one before has ended."""
        if self._began is None:
            self._began = state.monotonic
        time_of = state.monotonic - self._began + self._shift
        if self._times and time_of < self._times[-1]:
            self._shift += self._times[-1] - time_of + 1.0
            time_of = self._times[-1] + 1.0
        self._read += 1
        if (self._read - 1) % self.thinned:
            return
        packed, moment = zlib.compress(_encoder.encode(state), 1), moment_of(state)
        with self._lock:
            self._times.append(time_of)
            self._packed.append(packed)
            self._moments.append(moment)
            self._bytes += len(packed) + POINT_BYTES * len(moment.points)
            if self._bytes > self._most and len(self._times) > 1:
                self._thin()

    def _thin(self) -> None:
        self._times, self._packed, self._moments = self._times[::2], self._packed[::2], self._moments[::2]
        self._bytes = sum(map(len, self._packed)) + POINT_BYTES * sum(len(each.points) for each in self._moments)
        self.thinned *= 2
