"""What the agent's HTTP side is doing, for its faces."""

from __future__ import annotations

from agent.subject import Value

KNOWN = "kvtide.known"  # in a request's scope: whether who asks has shown who they are
REASONS = ("crowded", "slow", "unread", "handshake", "certificate", "credentials", "busy", "host")


class HttpState(Value, frozen=True, kw_only=True):
    """``listen``: HOST:PORT as bound. ``known``: nobody is answered who has not shown who they are. ``problem``: why
    the web configuration file that is there is not the one in force, empty where it is. ``refused``: connections and
    requests that were turned away since the agent started, by reason: ``crowded``: a connection that waited, closed
    for a new one; ``slow``: no whole request in time; ``unread``: the answer was not read; ``handshake``: no TLS;
    ``certificate``: a client's, with none of the names; ``credentials``: none or wrong ones; ``busy``: too many
    wrong ones before; ``host``: asked for by a name that is not this host's.
    """

    listen: str
    loopback: bool
    tls: bool
    known: bool
    problem: str
    connections: int
    refused: dict[str, int]
