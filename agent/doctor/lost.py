"""What the host source can't tell here, and for want of which privilege."""

from __future__ import annotations

from collections.abc import Iterator

from agent.doctor.findings import Finding, note
from agent.state import AgentState

# What a field is, for people; any other goes by its own name.
WORDS = {
    "dead": "whether processes that are gone still hold GPU memory",
    "host_pids": "which process here is which of the driver's",
    "children": "what engines have started",
    "cgroups": "limits of memory (cgroups)",
    "shm": "shared memory",
}


def findings(state: AgentState) -> Iterator[Finding]:
    """Yield a finding for each reason, with all that is absent because of it."""
    if state.host is None:
        return
    fields: dict[str, list[str]] = {}
    for field, reason in sorted(state.host.unavailable.items()):
        fields.setdefault(reason, []).append(WORDS.get(field, field))
    for reason, names in fields.items():
        text = f"not told: {'; '.join(names)}: {reason}"
        yield note("host", text, "if it is wanted: docs/host.md, in Kubernetes docs/kubernetes.md")
