"""The hooks' end of the link in a process of its own: ``python -m tests.unit.kubernetes.engine_in_pod``.

Settings come from the environment. It prints one line of JSON, what became of the link and what it could do to the
socket's folder, and goes on until its standard input ends.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engine_hooks.link import STARTING, AgentLink
from engine_hooks.settings import Settings
from tests.unit.support import PATIENCE, Recorder


def refused(what: Callable[[], object]) -> str:
    """Return the name of the error, ``done`` where there is none."""
    try:
        what()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def bind(path: Path) -> None:
    """Bind ``path`` as an impostor would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(path))


def main() -> None:
    """Connect, look, tell, wait."""
    settings = Settings.from_environment()
    recorder = Recorder(instance=f"i{os.geteuid()}", name=f"engine-{os.geteuid()}", engine_id=f"e{os.geteuid()}")
    link = AgentLink(settings, recorder.callbacks)
    link.start()
    end = time.monotonic() + PATIENCE
    while link.state == STARTING and time.monotonic() < end:
        time.sleep(0.01)
    folder = settings.socket.parent
    told = {
        "link": link.state,
        "unlink": refused(settings.socket.unlink),
        "bind": refused(lambda: bind(folder / "other.sock")),
        "key": refused(lambda: settings.key_file.write_text("0")),
        "seen": sorted(path.name for path in folder.iterdir()),
    }
    print(json.dumps(told), flush=True)
    sys.stdin.read()
    link.close()


if __name__ == "__main__":
    main()
