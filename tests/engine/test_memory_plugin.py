"""What the soak measures the hooks' memory with: it finds their books, and does no harm to the engine that it is in."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.bed.engine import ROOT

PROGRAM = """
import json, tracemalloc
tracemalloc.start(1)
from tests.bed.leak_plugin import kvtide_test_memory as plugin
plugin.note_owners()
from engine_hooks.core.rebuild import EvictedHashes
from engine_hooks.core.sessions import SessionBook

hashes, sessions = EvictedHashes(), SessionBook()

def empty():
    return plugin.held_in(plugin.books())

before = empty()
for number in range(2_000):
    hashes.add(1 << 64 | number)

looked = plugin.books()

def making():
    for number in range(100):
        if number == 50:
            next(looked)  # as of another thread, in the middle of a tuple that is being made
        yield number

print(json.dumps({"made": len(tuple(making())), "held": plugin.held_in(plugin.books()) - before}))
"""


def test_books_are_found_while_a_tuple_is_being_made() -> None:
    """In a process of its own: all that is traced is noted there, and the classes are changed."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["made"] == 100
    assert told["held"] > 2_000 * 8
