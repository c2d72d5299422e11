"""Tenants that are told as hashes, through a real server and agent: what a client calls itself is nowhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import httpx2
from kvtide_chaos.kv_blocks import arm, wait_planted

from agent.bundle.format import SUFFIX, read
from engine_hooks.names import short_hash
from tests.bed.agent import KVTIDE, PATIENCE_SECONDS
from tests.e2e.conftest import Rig

FIRM, MAIL = "Acme Widgets Ltd", "alice@example.com"
FIRM_TOLD, MAIL_TOLD = f"header-{short_hash(FIRM)}", f"user-{short_hash(MAIL)}"
BODY = {"model": "tiny", "prompt": list(range(5, 105)), "max_tokens": 8, "temperature": 0.0, "ignore_eos": True}


def tenants(rig: Rig) -> dict[str, int]:
    rows = (rig.agent.engine().get("detail") or {}).get("tenants") or ()
    return {row["tenant"]: row["requests_total"] for row in rows}


def order(rig: Rig, lever: str, *arguments: str) -> str:
    command = [KVTIDE, "actions", "order", lever, rig.agent.engine()["engine"], *arguments, "--json"]
    done = subprocess.run(
        [*map(str, command), "--socket", str(rig.agent.socket)], capture_output=True, text=True, timeout=120, check=True
    )
    return str(json.loads(done.stdout))


def recorded(folder: Path) -> bytes:
    """All that the agent has kept: recordings unpacked, everything else as it is on the disk."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix == SUFFIX:
            found += [body for _, body in read(path).raw()]
        elif path.is_file():
            found.append(path.read_bytes())
    return b"\n".join(found)


def test_what_clients_call_themselves_is_nowhere(rig: Rig) -> None:
    with httpx2.Client(base_url=rig.engine.url, trust_env=False, timeout=600.0) as client:

        def ask(body: dict[str, object], **headers: str) -> None:
            assert client.post("/v1/completions", json={**BODY, **body}, headers=headers).status_code == 200

        ask({"user": MAIL})
        arm(rig.leaks, 1, 1)
        while not (rig.leaks / "planted.json").exists():
            ask({}, **{"X-Tenant": FIRM, "X-Session-ID": f"{FIRM} talks"})
        wait_planted(rig.leaks, PATIENCE_SECONDS)
    rig.agent.wait(lambda: {FIRM_TOLD, MAIL_TOLD} <= tenants(rig).keys())
    rig.agent.wait(lambda: any(row["tenant"] == FIRM_TOLD for row in rig.agent.engine()["detail"]["leaks"]))
    rig.agent.wait(lambda: "confirmed" in [each["phase"] for each in rig.agent.verdicts("kv_orphan")])
    rig.agent.wait(lambda: FIRM_TOLD.encode() in recorded(rig.agent.kept))
    done = order(rig, "reclaim_orphans", "age_seconds=1")

    told = {path: rig.agent.get(path) for path in ("/metrics", "/metrics/detail", "/api/v1/state", "/")}
    for path in ("/metrics", "/metrics/detail", "/api/v1/state"):
        assert FIRM_TOLD in told[path], path
        assert MAIL_TOLD in told[path], path
    kept = recorded(rig.agent.kept)
    assert b"reclaim_orphans" in kept, "the journal is read, too"
    for name in (FIRM, MAIL):
        for path, text in told.items():
            assert name not in text, path
        assert name.encode() not in kept
        assert name not in done + rig.agent.log.read_text(errors="replace")
