"""Who can read the agent's HTTP port."""

from __future__ import annotations

from collections.abc import Iterator

from agent.doctor.findings import Finding, bad, ok, warn
from agent.state import AgentState

_DOCS = "docs/security.md"


def findings(state: AgentState) -> Iterator[Finding]:
    """Yield what the port's settings mean; nothing of an agent that does not tell."""
    http = state.http
    if http is None:
        return
    if http.problem:
        yield bad("web", f"what was before stays in force: {http.problem}", "kvtide web check FILE")
    elif http.loopback:
        yield ok("web", f"{http.listen} is this host alone{', and asks who it is' if http.known else ''}")
    elif not http.known:
        text = f"{http.listen}: whoever reaches it can read all that the agent knows"
        yield warn("web", text, f"http.web_config_file with basic_auth_users or client certificates: {_DOCS}")
    elif not http.tls:
        text = f"{http.listen}: passwords cross the network in clear"
        yield warn("web", text, f"tls_server_config in http.web_config_file: {_DOCS}")
    else:
        yield ok("web", f"{http.listen}: TLS, and it asks who it is")
    if busy := http.refused.get("busy", 0):
        yield warn("web", f"{busy} requests were refused after many wrong passwords", "is somebody guessing?")
