"""What others say about acting, in files: the node's and the fleet's off switch, who is drained, the fleet's verdicts.

Read once a second on a thread of its own: a file system that hangs must not hold up the agent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.actions.fleet import FleetOrders, parse
from agent.policy.types import Policy

logger = logging.getLogger("kvtide.actions")

EVERY_SECONDS = 1.0
FIRST_SECONDS = 1.0  # a file system that hangs holds up the start no longer
OLD_SECONDS = 10.0  # what was read before that is not known any more
FLEET_SECONDS = 60.0  # how old the fleet's word may be
OFF_FILE, YIELD_FOLDER, ALL_ENGINES = "actions.off", "yield", "all"
_MOST = 4096  # bytes of one file that are looked at
_MOST_ORDERS = 64 << 10  # of the fleet's word: more can't be all of it
_MOST_FILES = 256


@dataclass(frozen=True, slots=True)
class Said:
    """``at``: monotonic seconds. ``off``: why nothing may be done. ``yields``: why, by engine; ``""`` for all.
    ``fleet``: share of nodes by kind of verdict; None where there is no fresh word. ``orders``: what is ordered for the
    fleet, by each place where it may be.
    """

    at: float
    off: str = ""
    yields: Mapping[str, str] = field(default_factory=dict)
    fleet: Mapping[str, float] | None = None
    orders: tuple[FleetOrders, ...] = ()


def read(policy: Policy, directory: Path, at: float, unix: float) -> Said:
    """Return what the files say at ``at``; a switch that can't be read counts as off."""
    limits = policy.actions
    off = _switch(directory / OFF_FILE)
    orders = _orders(Path(limits.off_switch_file)) if limits.off_switch_file else FleetOrders()
    off = off or (orders.off and f"the fleet's off switch {limits.off_switch_file}: {orders.off}")
    fleet = _fleet(Path(limits.fleet_file), unix) if limits.fleet_file else None
    return Said(at=at, off=off, yields=_yields(directory / YIELD_FOLDER), fleet=fleet, orders=(orders,))


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST).decode(errors="replace").strip().partition("\n")[0].strip()


def _switch(path: Path) -> str:
    """Return why the node's switch is off; empty where it is on, which it is where there is no file."""
    try:
        text = _first_line(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"the node's off switch {path} can't be read: {error.strerror}"
    return f"the node's off switch {path}: {text or 'off'}"


def _orders(path: Path) -> FleetOrders:
    """Return the fleet's word; without a file it is on, and one that can't be read switches off."""
    try:
        with path.open("rb") as file:
            body = file.read(_MOST_ORDERS + 1)
        if len(body) > _MOST_ORDERS:
            return FleetOrders(off="it can't be read: it is too long")
        return parse(body.decode(errors="replace"))
    except FileNotFoundError:
        return FleetOrders()
    except OSError as error:
        return FleetOrders(off=f"it can't be read: {error.strerror}")
    except ValueError as error:
        return FleetOrders(off=f"it can't be read: {error}")


def _yields(folder: Path) -> dict[str, str]:
    try:
        names = sorted(each.name for each in folder.iterdir())[:_MOST_FILES]
    except FileNotFoundError:
        return {}
    except OSError as error:
        return {"": f"{folder} can't be read: {error.strerror}"}
    found = {}
    for name in names:
        try:
            text = _first_line(folder / name)
        except OSError:
            text = ""
        found["" if name == ALL_ENGINES else name] = f"drained or rolled out ({folder / name}){text and f': {text}'}"
    return found


def _fleet(path: Path, unix: float) -> dict[str, float] | None:
    """Return the shares in lines such as ``kv_pressure 0.25``; None where they are old or can't be read."""
    try:
        if abs(unix - path.stat().st_mtime) > FLEET_SECONDS:
            return None
        with path.open("rb") as file:
            rows = [line.split() for line in file.read(_MOST).decode(errors="replace").splitlines() if line.strip()]
        return {kind: float(share) for kind, share in rows}
    except (OSError, ValueError):
        return None


class Outside:
    """``policy`` gives the one in force; ``environment``: why the environment switches all off, empty where not.
    ``word``: what is ordered for the fleet by its coordinator, whose ``off`` says all.
    """

    def __init__(
        self,
        policy: Callable[[], Policy],
        directory: Path,
        environment: str,
        word: Callable[[], FleetOrders] = FleetOrders,
    ) -> None:
        self._word = word
        self._policy = policy
        self._directory = directory
        self._environment = environment
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvtide-switches", daemon=True)
        self._said: Said | None = None
        self._joined: tuple[Said, FleetOrders, Said] | None = None
        self._read = threading.Event()

    def start(self) -> None:
        """Begin, and wait for the first word: not known counts as off, and off gives an isolated engine its share."""
        self._thread.start()
        self._read.wait(FIRST_SECONDS)

    def close(self) -> None:
        """End, some time."""
        self._stop.set()

    def said(self, now: float) -> Said:
        """Return what they say; off where that is not known. ``now``: monotonic seconds."""
        said = self._said
        if self._environment:
            return Said(at=now, off=self._environment)
        if said is None or now - said.at > OLD_SECONDS:
            return Said(at=now, off="the off switches have not been read")
        word = self._word()
        joined = self._joined
        if joined is None or joined[0] is not said or joined[1] != word:  # asked thirty times between two readings
            joined = said, word, replace(said, off=said.off or word.off, orders=(*said.orders, word))
            self._joined = joined
        return joined[2]

    def look(self) -> None:
        """Read them once."""
        self._said = read(self._policy(), self._directory, time.monotonic(), time.time())

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
            except Exception:
                logger.exception("the off switches can't be read: please report this")
            self._read.set()
            self._stop.wait(EVERY_SECONDS)
