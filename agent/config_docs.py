"""Write docs/configuration.md from the configuration's own model: ``python -m agent.config_docs [--check]``."""

from __future__ import annotations

import sys

from agent.config import AgentConfig
from agent.generated_page import DOCS, rows, write_or_check

TARGET = DOCS / "configuration.md"

HEAD = """# Configuration

Generated from `agent/config.py` by `make generate`; do not edit.

## The agent

`kvtide agent --config FILE`; without the option `/etc/kvtide/agent.yaml` is read if it exists. Every key has a default.
Options (`--socket`, `--key-file`, `--listen`, `--state-directory`, `--policy`) win over the file, and so do
`KVTIDE_SOCKET`, `KVTIDE_KEY_FILE`, `KVTIDE_STATE_DIRECTORY` and `KVTIDE_NODE` (`balancer.node`) in its environment.
`KVTIDE_ACTIONS_OFF=1` there lets it do nothing, whatever the policy says. `KVTIDE_CONTROL`, there and for `kvtide
actions` and `kvtide node`, is the control socket's path, if it is not to be beside the link's: engines' containers that
see that folder must not see it ([Kubernetes](kubernetes.md)). A key that is not listed here is an
error. Commands such as `kvtide status` find the agent by `--url` or `KVTIDE_URL`, and show who they are by
`KVTIDE_CREDENTIALS_FILE` or `KVTIDE_CREDENTIALS`, `KVTIDE_CA_FILE`, `KVTIDE_CERT_FILE`, `KVTIDE_CLIENT_KEY_FILE`:
[security](security.md).

| key | default | meaning |
|---|---|---|
"""

TAIL = """
```yaml
link:
  socket: /run/kvtide/agent.sock
  group: vllm            # engines whose user is in this group may connect and read the key
http:
  listen: 127.0.0.1:9477
```

## The engine

Environment variables of the engine's process. A bad value is reported in one line and the default is used: no setting
of ours stops an engine.

| variable | default | meaning |
|---|---|---|
| `KVTIDE_DISABLE` | - | any value but 0, false or no: the hooks do nothing at all |
| `KVTIDE_SOCKET` | `/run/kvtide/agent.sock` | where the agent listens |
| `KVTIDE_KEY_FILE` | `agent.key` beside the socket | the key shared with the agent |
| `KVTIDE_AGENT_UIDS` | root and the engine's own user | users (names or uids, comma-separated) who may be the agent |
| `KVTIDE_ENGINE_NAME` | the served model's name | the value of the `engine` label |
| `KVTIDE_LEVERS` | none | levers that this process obeys, with commas between them: [levers](levers.md) |
| `KVTIDE_UPSTREAMS` | none | JSON file of servers that requests may be sent on to: [admission](admission.md) |
| `KVTIDE_PIN_SECONDS` | 600 | after what time blocks that a connector unknown to us may hold count as leaked |
| `KVTIDE_PLAIN_IDS` | - | any value but 0, false or no: show ids of requests and sessions, not their hashes |
| `KVTIDE_HASH_TENANTS` | - | any value but 0, false or no: tenants that clients name (`user`, headers) are hashes, \
unless the map names them: [tenants](tenants.md) |
| `KVTIDE_SNAPSHOT_DIR` | - | folder for the allocator's segments when an allocation fails: see [torch](torch.md) |
| `KVTIDE_HISTORY` | - | any value but 0, false or no: the agent may have allocations recorded, for 10 min at most |
| `KVTIDE_TENANT_FROM`, `KVTIDE_SESSION_HEADER`, `KVTIDE_TRUSTED_PROXIES`, `KVTIDE_TENANT_MAP`, `KVTIDE_MARKS_TOKEN` \
| - | whose a request is: see [tenants](tenants.md) |

## An engine that does not run as root

The agent makes the key at its first start, readable by its own user and group. With `link.group: vllm` socket and key
belong to that group, and all its members may connect. If the agent runs neither as root nor as the engine's user, tell
the engine so: `KVTIDE_AGENT_UIDS=kvtide`.

## Exit codes of `kvtide`

0: done. 1: it could not be done (no agent answers, the port or the socket is in use). 2: what was asked or configured
is wrong. 130: interrupted.
"""


def render() -> str:
    """Return the page."""
    return HEAD + "\n".join(rows(AgentConfig)) + "\n" + TAIL


if __name__ == "__main__":
    sys.exit(write_or_check(TARGET, render, sys.argv[1:]))
