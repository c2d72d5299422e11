"""Call stacks of a snapshot, each kept once, and the call site that stands for a stack."""

from __future__ import annotations

from typing import Any

from agent.plain import plain
from agent.snapshot.checks import Checks, Place
from agent.snapshot.model import NO_STACK, Frame, Stacks

LONGEST = 400  # characters of a file's or a function's name; C++ functions have long ones
DEEPEST = 256  # frames of one stack; what is further out is left off
# Frames that stand between the code that wanted memory and the allocator.
_PASSED = ("/torch/", "torch/_", "<frozen", "/contextlib.py", "/c10/", "/aten/")
_NATIVE = (".cpp", ".h", ".cc", ".cu", ".hpp", ".c")
NOT_RECORDED = Frame("", 0, "(no call stack recorded)")


class Interning:
    """Numbers frames and stacks. ``shared``: frames are shared objects (a pickle), so that their ids can be used."""

    def __init__(self, checks: Checks, shared: bool) -> None:
        self._checks = checks
        self._shared = shared
        self._by_id: dict[int, int] = {}
        self._by_ids: dict[tuple[int, ...], int] = {}
        self._kept: list[Any] = []  # what ids were taken of must not go away
        self._frames: dict[Frame, int] = {NOT_RECORDED: 0}
        self._stacks: dict[tuple[int, ...], int] = {(): NO_STACK}

    def number(self, frames: Any, place: Place, n: int) -> int:
        """Return the number of a stack as it stands in the file, in the ``n``-th row at ``place``."""
        if not frames and frames in (None, []):
            return NO_STACK
        if type(frames) is not list:
            raise self._checks.wrong((*place, n, "frames"), frames, "a list of frames")
        if len(frames) > DEEPEST:
            frames = frames[:DEEPEST]
        # Most stacks of a pickle are made of frames that were seen before: their ids are found at once.
        ids = tuple(map(id, frames)) if self._shared else ()
        stack = self._by_ids.get(ids)
        if stack is None:
            key = tuple([self._frame(frame, (*place, n, "frames")) for frame in frames])
            stack = self._stacks.setdefault(key, len(self._stacks))
            if self._shared:
                self._by_ids[ids] = stack
        return stack

    def result(self) -> Stacks:
        """Return all frames and stacks, by number."""
        frames, stacks = list(self._frames), list(self._stacks)
        passed = [_passed(frame) for frame in frames]
        sites = [next((frame for frame in stack if not passed[frame]), stack[0] if stack else 0) for stack in stacks]
        return Stacks(frames, stacks, sites)

    def _frame(self, frame: Any, place: Place) -> int:
        known = self._by_id.get(id(frame))
        if known is not None:
            return known
        if type(frame) is not dict:
            raise self._checks.wrong(place, frame, "a frame: a dict with filename, line and name")
        filename, line, name = frame.get("filename", ""), frame.get("line", 0), frame.get("name", "")
        if type(filename) is not str or type(name) is not str or type(line) is not int:
            raise self._checks.wrong(place, frame, "a frame with text for filename and name, and an integer line")
        frame_of = Frame(plain(filename, LONGEST), line, plain(name, LONGEST))
        number = self._frames.setdefault(frame_of, len(self._frames))
        if self._shared:
            self._by_id[id(frame)] = number
            self._kept.append(frame)
        return number


def _passed(frame: Frame) -> bool:
    if any(part in frame.filename for part in _PASSED):
        return True
    return "." not in frame.filename.rsplit("/", 1)[-1] or frame.filename.endswith(_NATIVE)
