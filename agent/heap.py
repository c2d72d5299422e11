"""What the C library keeps of the memory that was given back to it: no more than it must.

Pages of metrics, states and frames come and go in hundreds of kilobytes, some hundred times a minute. glibc takes the
first of them by mmap and, once one is freed, learns to take all that are as large from its heap; there they leave
holes between what stays, and the heap grows for hours though nothing in it does. Other C libraries have no such
habits, and no such functions: there nothing is done.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
LARGE_BYTES = 131_072  # glibc's own first value; one that is set does not move any more
EVERY_SECONDS = 60.0

_C = ctypes.CDLL(None)


def settle() -> None:
    """Have what is large taken by mmap, now and later, so that it goes back whole."""
    if hasattr(_C, "mallopt"):
        _C.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        _C.mallopt(M_TRIM_THRESHOLD, LARGE_BYTES)


def trim() -> None:
    """Give back the pages of holes. Takes as long as the heap has holes: a tenth of a millisecond each minute."""
    if hasattr(_C, "malloc_trim"):
        _C.malloc_trim(0)
