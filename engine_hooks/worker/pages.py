"""Pages of this process's memory: which are there, given back to the kernel, and there again. Linux only."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from threading import Event

Span = tuple[int, int]  # address, bytes

PAGE = mmap.PAGESIZE
CHUNK = 32 << 20  # bytes between two looks at whether to stop: some milliseconds
RESERVE = 64 << 20  # bytes that are left to others when memory is taken anew
_MADV_DONTNEED, _MADV_POPULATE_WRITE = 4, 23


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    return libc


def whole_pages(span: Span) -> Span:
    """Return what of a span is whole pages."""
    start = -(-span[0] // PAGE) * PAGE
    return start, max(0, (span[0] + span[1]) // PAGE * PAGE - start)


def all_pages(span: Span) -> Span:
    """Return all pages that a span reaches into: others may use a part of the first and of the last."""
    start = span[0] // PAGE * PAGE
    return start, -(-(span[0] + span[1]) // PAGE) * PAGE - start


def resident_bytes(span: Span) -> int:
    """Return how much of a span's whole pages is in memory; raises OSError."""
    libc = _libc()
    start, size = whole_pages(span)
    found = 0
    for at in range(start, start + size, CHUNK):
        part = min(CHUNK, start + size - at)
        seen = ctypes.create_string_buffer(part // PAGE)
        if libc.mincore(at, part, seen):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        found += sum(map((1).__and__, seen.raw)) * PAGE
    return found


def release_pages(span: Span, stop: Event) -> bool:
    """Give a span's whole pages back, what they held is lost; return whether all went before ``stop`` was set."""
    libc = _libc()
    start, size = whole_pages(span)
    for at in range(start, start + size, CHUNK):
        if stop.is_set():
            return False
        if libc.madvise(at, min(CHUNK, start + size - at), _MADV_DONTNEED):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True


def touch_pages(span: Span, stop: Event) -> bool:
    """Have each page that a span reaches into there; what it holds is kept beside the span, and may change in it.

    Returns whether all are before ``stop`` was set. A page between two spans that were given back as one comes with the
    first of them.
    """
    libc = _libc()
    start, size = all_pages(span)
    for at in range(start, start + size, CHUNK):
        if stop.is_set():
            return False
        part = min(CHUNK, start + size - at)
        if libc.madvise(at, part, _MADV_POPULATE_WRITE):
            if ctypes.get_errno() != errno.EINVAL:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            _touch_by_hand(at, at + part, whole_pages(span))
    return True


def _touch_by_hand(first: int, end: int, whole: Span) -> None:
    """The same on a kernel before 5.14: whole pages of the span are written to, and those at its ends are read."""
    for page in {first, end - PAGE}:
        ctypes.c_char.from_address(page).value  # noqa: B018 - that it is read is what is wanted
    low, high = max(first, whole[0]), min(end, whole[0] + whole[1])
    if high > low:
        ctypes.memset(low, 0, high - low)


def available_bytes() -> int | None:
    """Return what may be taken without driving others out, by the kernel; None where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return max(0, int(line.split()[1]) * 1024 - RESERVE)
    except (OSError, ValueError, IndexError):
        return None
    return None
