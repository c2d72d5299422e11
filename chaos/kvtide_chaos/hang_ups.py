"""Clients that ask for a long answer and hang up in the middle: what leaves KV blocks behind in buggy engines."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2

from kvtide_chaos import quantities
from kvtide_chaos.injector import Injector

WORKERS = 16
TIMEOUT_SECONDS = 60.0


class HangUpInjector(Injector):
    """Sends ``rate`` streaming completions a second to an OpenAI-shaped server and drops each after its first bytes.

    At most 16 are open at once; what would be more is skipped and counted. ``headers`` may name a tenant or a key.
    """

    def __init__(
        self,
        url: str,
        model: str,
        rate: str = "2requests/s",
        *,
        prompt: str = "Tell the history of the sea, from the beginning. ",
        max_tokens: int = 512,
        headers: dict[str, str] | None = None,
        duration: str | float = "10m",
    ) -> None:
        super().__init__(duration)
        address = httpx2.URL(url)
        if address.scheme not in ("http", "https") or not address.host:
            raise ValueError(f"{url!r} is no server's address: write it as http://127.0.0.1:8000")
        self.requests_per_second = quantities.count_per_second(rate, "requests")
        self._body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "stream": True}
        self._client = httpx2.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS)
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="hang-up")
        self._open = threading.Semaphore(WORKERS)
        self._lock = threading.Lock()
        self._due = 0
        self.hung_up = 0
        self.refused = 0
        self.failed = 0
        self.skipped = 0

    def _begin(self) -> None:
        """Nothing can be known before: a server that is not there shows in ``failed``."""

    def _step(self, elapsed: float) -> None:
        while self._due < int(elapsed * self.requests_per_second):
            self._due += 1
            if self._open.acquire(blocking=False):
                self._pool.submit(self._ask_and_leave)
            else:
                self.skipped += 1

    def _ask_and_leave(self) -> None:
        outcome = "failed"
        try:
            with self._client.stream("POST", "/v1/completions", json=self._body) as answer:
                outcome = "refused" if answer.status_code >= 400 else "hung_up"
                if outcome == "hung_up":
                    next(answer.iter_raw(), None)
        except httpx2.HTTPError:
            outcome = "failed"
        finally:
            self._open.release()
            with self._lock:
                setattr(self, outcome, getattr(self, outcome) + 1)

    def _take_back(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._client.close()
