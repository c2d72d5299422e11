"""Whose a request is: the tenant and the session that its front end marked it with, and its name for people."""

from __future__ import annotations

import os
import secrets
from hmac import compare_digest
from typing import Any

import msgspec

from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.names import NO_TENANT, printable

# The key in ``sampling_params.extra_args`` under which the front end's marks travel to the scheduler. A client can
# write there too (``vllm_xargs``), and not every front end is ours: the token, which only the processes of one engine
# know, tells the two apart.
MARKS_KEY = "kvtide"
TOKEN_VARIABLE = "KVTIDE_MARKS_TOKEN"  # noqa: S105 - the name of the variable

_settings = TenantSettings()  # one environment, one configuration per process


class Marks(msgspec.Struct, frozen=True, gc=False):
    """``tenant``: never empty, ``none`` when nobody said. ``session``: empty when the request belongs to none."""

    tenant: str = NO_TENANT
    session: str = ""


def share_token() -> None:
    """Draw this engine's token, unless a parent process did: children inherit it through the environment."""
    os.environ.setdefault(TOKEN_VARIABLE, secrets.token_hex(16))


def use(settings: TenantSettings) -> None:
    """Have this process name tenants by ``settings`` where no front end of ours did."""
    global _settings  # noqa: PLW0603 - observers ask for marks without knowing any settings
    _settings = settings


def front_marks(tenant: str, session: str) -> dict[str, str]:
    """Return what travels under :data:`MARKS_KEY`, signed for this engine's own scheduler."""
    return {"tenant": tenant, "session": session, "token": os.environ.get(TOKEN_VARIABLE, "")}


def marks_of(request: Any) -> Marks:
    """Return the marks of a scheduler's request: those of the front end, else what the request itself carries."""
    extra = getattr(getattr(request, "sampling_params", None), "extra_args", None)
    marks = extra.get(MARKS_KEY) if isinstance(extra, dict) else None
    session = getattr(request, "session_id", None) or ""
    if isinstance(marks, dict) and _believed(marks):
        tenant, session = str(marks.get("tenant") or ""), str(marks.get("session") or session)
    else:
        # Not from our front end: an engine in its caller's process, gRPC, a front end that is no Python.
        lora = getattr(getattr(request, "lora_request", None), "lora_name", None)
        tenant = _settings.of_request(getattr(request, "cache_salt", None), lora, {})
    return Marks(tenant=printable(tenant) or NO_TENANT, session=printable(session))


def _believed(marks: dict[str, Any]) -> bool:
    """Whether ``marks`` were set by this engine's front end. Without a token there is no front end, and no client."""
    token = os.environ.get(TOKEN_VARIABLE)
    return token is None or compare_digest(token.encode(), str(marks.get("token", "")).encode())
