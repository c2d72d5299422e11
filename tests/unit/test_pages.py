"""Pages of this process: there, given back, there again; what is beside a span stays."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterator
from threading import Event

import pytest

from engine_hooks.worker.compaction import _Tail
from engine_hooks.worker.pages import (
    PAGE,
    Span,
    all_pages,
    available_bytes,
    release_pages,
    resident_bytes,
    touch_pages,
    whole_pages,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux only")
SIZE = 64 * PAGE


@pytest.fixture
def memory() -> Iterator[tuple[mmap.mmap, int]]:
    area = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area[:] = b"x" * SIZE
    view = ctypes.c_char.from_buffer(area)
    yield area, ctypes.addressof(view)
    del view
    area.close()


def test_only_whole_pages_inside_go(memory: tuple[mmap.mmap, int]) -> None:
    area, start = memory
    span = (start + PAGE + 1, 10 * PAGE)
    assert whole_pages(span) == (start + 2 * PAGE, 9 * PAGE)
    assert resident_bytes(span) == 9 * PAGE
    assert release_pages(span, Event())
    assert resident_bytes(span) == 0
    assert area[: 2 * PAGE] == b"x" * 2 * PAGE
    assert area[11 * PAGE :] == b"x" * (SIZE - 11 * PAGE)
    assert area[2 * PAGE : 11 * PAGE] == bytes(9 * PAGE)


def test_touched_pages_are_there_again(memory: tuple[mmap.mmap, int]) -> None:
    _area, start = memory
    span = (start, SIZE)
    release_pages(span, Event())
    assert touch_pages(span, Event())
    assert resident_bytes(span) == SIZE


def test_a_page_between_two_spans_that_went_as_one_is_there_again_and_counted(memory: tuple[mmap.mmap, int]) -> None:
    """Blocks come back some at a time, and pages do not end where blocks do."""
    area, start = memory
    first, second = (start + 100, 5 * PAGE), (start + 100 + 5 * PAGE, 7 * PAGE)
    tail = _Tail()
    run(tail, release_pages, (first[0], first[1] + second[1]))
    assert tail.released == 11 * PAGE
    run(tail, touch_pages, first)
    assert resident_bytes(all_pages(first)) == 6 * PAGE
    run(tail, touch_pages, second)
    assert tail.released == 0
    assert area[:100] == b"x" * 100
    assert area[100 + 12 * PAGE :] == b"x" * (SIZE - 100 - 12 * PAGE)


@pytest.mark.parametrize("size", [4 * PAGE, 60, PAGE])
def test_an_old_kernel_has_them_touched_by_hand(
    memory: tuple[mmap.mmap, int], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("engine_hooks.worker.pages._MADV_POPULATE_WRITE", 9999)
    area, start = memory
    release_pages((start + 2 * PAGE, 3 * PAGE), Event())
    span = (start + 2 * PAGE - 50, size)
    assert touch_pages(span, Event())
    assert resident_bytes(all_pages(span)) == all_pages(span)[1]
    assert area[: 2 * PAGE] == b"x" * 2 * PAGE, "somebody else's bytes in its first page"
    assert area[5 * PAGE :] == b"x" * (SIZE - 5 * PAGE)


def test_what_was_never_there_is_not_counted_as_taken_back() -> None:
    area = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area[: 8 * PAGE] = b"x" * 8 * PAGE
    view = ctypes.c_char.from_buffer(area)
    span, tail = (ctypes.addressof(view), SIZE), _Tail()
    run(tail, release_pages, span)
    assert tail.released == 8 * PAGE
    run(tail, touch_pages, span)
    assert tail.released == 0
    run(tail, release_pages, span)
    assert tail.released == SIZE
    del view
    area.close()


def run(tail: _Tail, change: Callable[[Span, Event], bool], span: Span) -> None:
    tail.begin(change, [span])
    assert tail.thread is not None
    tail.thread.join()
    assert tail.error == ""


def test_what_is_stopped_changes_nothing(memory: tuple[mmap.mmap, int]) -> None:
    area, start = memory
    stop = Event()
    stop.set()
    assert not release_pages((start, SIZE), stop)
    assert area[:] == b"x" * SIZE
    assert not touch_pages((start, SIZE), stop)


def test_a_span_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="memory"):
        release_pages((PAGE, PAGE), Event())


def test_less_than_a_page_is_nothing(memory: tuple[mmap.mmap, int]) -> None:
    _area, start = memory
    assert resident_bytes((start + 1, PAGE)) == 0
    assert release_pages((start + 1, PAGE), Event())


def test_the_kernel_says_what_is_left() -> None:
    left = available_bytes()
    assert left is not None
    assert left >= 0
