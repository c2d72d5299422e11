"""How a refusal is told: a body shaped as the API's own errors are, and headers that hold no text of a client's."""

from __future__ import annotations

import json
from typing import Any

from engine_hooks.frontend.admission.judge import BAD_REQUEST, TOO_LARGE, TOO_MANY, Refusal

DECISION, CLEANED = b"x-kvtide-decision", b"x-kvtide-cleaned"
_TYPES = {TOO_MANY: "rate_limit_error", BAD_REQUEST: "invalid_request_error", TOO_LARGE: "invalid_request_error"}
_UNAVAILABLE = "service_unavailable_error"
_ANTHROPIC = "/v1/messages"


def error_body(refusal: Refusal, path: str) -> bytes:
    """Return the body that tells ``refusal`` to a client of ``path``."""
    error = {
        "message": refusal.text,
        "type": _TYPES.get(refusal.status, _UNAVAILABLE),
        "param": refusal.param,
        "code": f"kvtide_{refusal.reason}",
    }
    body: dict[str, Any] = {"error": error}
    if path == _ANTHROPIC:
        body["type"] = "error"
    return json.dumps(body).encode()


def messages(refusal: Refusal, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the two ASGI messages of the answer."""
    body = error_body(refusal, path)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (DECISION, f"refused; reason={refusal.reason}".encode()),
    ]
    if refusal.retry_after is not None:
        headers.append((b"retry-after", str(refusal.retry_after).encode()))
    start = {"type": "http.response.start", "status": refusal.status, "headers": headers}
    return start, {"type": "http.response.body", "body": body, "more_body": False}
