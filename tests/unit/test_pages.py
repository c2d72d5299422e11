"""Pages of this process: there, given back, there again; what is beside a span stays."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from threading import Event

import pytest

from engine_hooks.worker.pages import PAGE, available_bytes, release_pages, resident_bytes, touch_pages, whole_pages

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
