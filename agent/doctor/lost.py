"""What the host source can't tell here, and for want of which privilege."""

from __future__ import annotations

from collections.abc import Iterator

from agent.doctor.findings import Finding, note
from agent.state import AgentState


def findings(state: AgentState) -> Iterator[Finding]:
    """Yield a finding for each reason, with all that is absent because of it."""
    if state.host is None:
        return
    fields: dict[str, list[str]] = {}
    for field, reason in sorted(state.host.unavailable.items()):
        fields.setdefault(reason, []).append(field)
    for reason, names in fields.items():
        text = f"not told: {', '.join(names)}: {reason}"
        yield note("host", text, "if it is wanted: docs/host.md, in Kubernetes docs/kubernetes.md")
