"""A real Alertmanager on a loopback port and a receiver of its notifications, which leave nothing behind."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.bed import net, server
from tests.bed.server import UNPACKED, Server, answers

PACKAGE = UNPACKED / "prometheus-alertmanager"
NEWER = UNPACKED / "newer" / "usr" / "bin"  # of Debian's next release, where it could be had
TEMPLATES = "usr/share/prometheus/alertmanager"


def program(name: str, *, newer: bool = False) -> str:
    """Return the path of ``prometheus-alertmanager`` or ``amtool``; raises ``RuntimeError`` where it is not here."""
    if newer:
        return server.program(NEWER / name)
    return server.program(PACKAGE / "usr" / "bin" / name, name, name.removeprefix("prometheus-"))


def runnable(folder: Path) -> Path:
    """Return an Alertmanager that runs in ``folder`` without being installed.

    Debian's has the folder of its templates compiled in, and no flag for it. A Go string has its length: ours, relative
    to where it runs, must be as long.
    """
    found = Path(program("prometheus-alertmanager"))
    if not (PACKAGE / TEMPLATES).exists() or Path("/", TEMPLATES).exists():
        return found
    compiled = f"/{TEMPLATES}".encode()
    here = b"." + b"/" * (len(compiled) - 1)
    for template in (PACKAGE / TEMPLATES).glob("*.tmpl"):
        shutil.copy(template, folder)
    own = folder / "alertmanager"
    own.write_bytes(found.read_bytes().replace(compiled, here))
    own.chmod(0o700)
    return own


class Notification(NamedTuple):
    """What came: ``path`` names the receiver, ``at`` is monotonic, ``body`` what Alertmanager says."""

    path: str
    at: float
    body: dict[str, Any]


class Webhook:
    """Keeps each notification that is posted to it."""

    def __init__(self) -> None:
        self.got: list[Notification] = []
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                got.append(Notification(self.path.strip("/"), time.monotonic(), json.loads(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class AlertmanagerServer(Server):
    """Runs with ``config``, its files under ``folder``."""

    name = "alertmanager"

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        super().__init__(folder)
        file = folder / "alertmanager.yml"
        file.write_text(json.dumps(config))  # JSON is YAML
        self.address = f"127.0.0.1:{net.free_port()}"
        self.start(
            [
                str(runnable(folder)),
                f"--config.file={file}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address={self.address}",
                "--cluster.listen-address=",  # it is alone
            ]
        )

    def ready(self) -> bool:
        """Return whether it takes alerts."""
        return answers(f"http://{self.address}/-/ready")
