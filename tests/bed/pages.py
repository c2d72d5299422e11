"""Pages as engines of many versions serve them at /metrics, and a server on loopback that serves what a test says.

The names are facts of these versions: vLLM's from its sources, SGLang's from its own and from pages in public reports.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine says of itself; ``cached`` of the ``prompt`` tokens were in the prefix cache."""

    usage: float = 0.25
    running: int = 3
    waiting: int = 2
    preemptions: int = 5
    prompt: int = 4000
    generated: int = 900
    cached: int = 1000
    blocks: int = 1001


class Dialect(NamedTuple):
    """How a version says it. ``names``: by field of :class:`Load`; ``labels`` are those of each series."""

    prefix: str
    names: Mapping[str, tuple[str, ...]]
    labels: Mapping[str, str]
    info: Mapping[str, str] | None
    extra: tuple[str, ...] = ()


_COMMON = {
    "running": ("num_requests_running",),
    "waiting": ("num_requests_waiting",),
    "preemptions": ("num_preemptions_total",),
    "prompt": ("prompt_tokens_total",),
    "generated": ("generation_tokens_total",),
}
_OLD = {
    "usage": ("gpu_cache_usage_perc",),
    "prompt_looked_up": ("gpu_prefix_cache_queries_total",),
    "cached": ("gpu_prefix_cache_hits_total",),
}
_NEW = {
    "usage": ("kv_cache_usage_perc",),
    "prompt_looked_up": ("prefix_cache_queries_total",),
    "cached": ("prefix_cache_hits_total",),
}
_BOTH = {name: _OLD[name] + _NEW[name] for name in _NEW}
_MODEL = {"model_name": "org/model"}
_ENGINE = {"engine": "0", **_MODEL}
_INFO = {"block_size": "16", "cache_dtype": "auto", "num_cpu_blocks": "None", "num_gpu_blocks": "1001"}
_SGLANG = {"model_name": "org/model", "engine_type": "unified", "tp_rank": "0", "pp_rank": "0"}

DIALECTS = {
    "vllm 0.8 V0": Dialect(
        "vllm:",
        {**_COMMON, "usage": ("gpu_cache_usage_perc",)},
        _MODEL,
        {**_INFO, "num_cpu_blocks": "512"},
        (
            'vllm:num_requests_swapped{model_name="org/model"} 0.0',
            'vllm:cpu_cache_usage_perc{model_name="org/model"} 0.5',
        ),
    ),
    "vllm 0.8 V1": Dialect("vllm:", {**_COMMON, **_OLD}, _MODEL, _INFO),
    "vllm 0.9": Dialect("vllm:", {**_COMMON, **_BOTH}, _ENGINE, _INFO),
    "vllm 0.11": Dialect("vllm:", {**_COMMON, **_BOTH}, _ENGINE, {**_INFO, "engine": "0"}),
    "vllm 0.12": Dialect("vllm:", {**_COMMON, **_NEW}, _ENGINE, {**_INFO, "engine": "0"}),
    "vllm 0.33": Dialect(
        "vllm:",
        {**_COMMON, **_NEW},
        _ENGINE,
        {**_INFO, "engine": "0", "kv_cache_size_tokens": "16016"},
        (
            'vllm:num_requests_waiting_by_reason{engine="0",model_name="org/model",reason="capacity"} 2.0',
            'vllm:iteration_tokens_total_sum{engine="0",model_name="org/model"} 4900.0',
            'vllm:prompt_tokens_cached_total{engine="0",model_name="org/model"} 1000.0',
            'vllm:admission_rejections_total{model_name="org/model",reason="max_num_queued_reqs"} 0.0',
        ),
    ),
    # Ray's own exporter: with a colon before it could not have one, without the ending of counters in between.
    "ray vllm:": Dialect(
        "ray_vllm:",
        {**_COMMON, **_BOTH},
        {**_ENGINE, "WorkerId": "ab12", "SessionName": "s", "Version": "2.40.0"},
        None,
    ),
    "ray vllm_": Dialect(
        "ray_vllm_",
        {name: tuple(each.removesuffix("_total") for each in names) for name, names in {**_COMMON, **_NEW}.items()},
        {**_ENGINE, "ReplicaId": "r1", "WorkerId": "ab12", "NodeAddress": "node"},
        None,
    ),
    "sglang 0.5": Dialect(
        "sglang:",
        {
            "usage": ("token_usage",),
            "running": ("num_running_reqs",),
            "waiting": ("num_queue_reqs",),
            "preemptions": ("num_retracted_requests_total",),
        },
        _SGLANG,
        None,
        (
            'sglang:max_total_num_tokens{engine_type="unified",model_name="org/model",pp_rank="0",tp_rank="0"} 16000.0',
            'sglang:num_used_tokens{engine_type="unified",model_name="org/model",pp_rank="0",tp_rank="0"} 4000.0',
            'sglang:num_retracted_reqs{engine_type="unified",model_name="org/model",pp_rank="0",tp_rank="0"} 77.0',
            'sglang:cache_hit_rate{engine_type="unified",model_name="org/model",pp_rank="0",tp_rank="0"} 87.5',
            # Of its front, which has no ranks.
            'sglang:prompt_tokens_total{model_name="org/model"} 4000.0',
            'sglang:generation_tokens_total{model_name="org/model"} 900.0',
            'sglang:cached_tokens_total{cache_source="device",model_name="org/model"} 600.0',
            'sglang:cached_tokens_total{cache_source="host",model_name="org/model"} 400.0',
        ),
    ),
}
_NOISE = (
    "# HELP python_gc_collections_total Number of times this generation was collected",
    "# TYPE python_gc_collections_total counter",
    'python_gc_collections_total{generation="0"} 1587.0',
    "process_start_time_seconds 1.79597063729e+09",
    'vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.3",model_name="org/model"} 1.0',
    'http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 41.0',
)


def page(dialect: str = "vllm 0.33", load: Load = Load(), **labels: str) -> str:
    """Return the page of an engine of this dialect under ``load``; ``labels`` are added to its series or replaced."""
    said = DIALECTS[dialect]
    lines = list(_NOISE)
    for name, names in said.names.items():
        value = load.prompt if name == "prompt_looked_up" else getattr(load, name)
        lines += [line(said.prefix + each, value, {**said.labels, **labels}) for each in names]
    if said.info is not None:
        info = {**said.info, "num_gpu_blocks": str(load.blocks)}
        if "engine" in info and "engine" in labels:
            info["engine"] = labels["engine"]
        lines.append(line(f"{said.prefix}cache_config_info", 1, info))
    lines += said.extra
    return "\n".join(lines) + "\n"


def line(name: str, value: float, labels: Mapping[str, str]) -> str:
    """Return one line of a page."""
    said = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{said}}} {float(value)!r}"


@dataclass(slots=True)
class Reply:
    """What the server answers; ``raw`` replaces the whole answer."""

    body: str | bytes = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/plain; version=0.0.4"})
    raw: bytes | None = None


class PageServer:
    """Serves what ``answer`` says for a path, on loopback. ``asked``: each request's path and headers."""

    def __init__(self, answer: Callable[[str], Reply], tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.connections = 0
        self.let_go = threading.Event()  # for answers that wait
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def setup(self) -> None:
                server.connections += 1
                super().setup()

            def do_GET(self) -> None:
                server.asked.append((self.path, dict(self.headers)))
                reply = server.answer(self.path)
                if reply.raw is not None:
                    self.wfile.write(reply.raw)
                    self.close_connection = True
                    return
                body = reply.body.encode() if isinstance(reply.body, str) else reply.body
                self.send_response(reply.status)
                for name, text in {"Content-Length": str(len(body)), **reply.headers}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a client that goes away is what some tests are about

        self._server = Server(("127.0.0.1", 0), Handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Without a path."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop serving and free the port."""
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving(answer: Callable[[str], Reply] | str, tls: ssl.SSLContext | None = None) -> Iterator[PageServer]:
    """Serve ``answer``, or that same page for every path, until the end of the block."""
    server = PageServer((lambda _: Reply(answer)) if isinstance(answer, str) else answer, tls)
    try:
        yield server
    finally:
        server.close()
