"""Does a Prometheus scrape this agent, and has it our rules?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2

from agent.backtest.span import seconds_of
from agent.doctor.findings import Finding, bad, ok, warn
from agent.errors import ConfigError
from agent.units import human_seconds

TIMEOUT = 10.0
SLOW_SECONDS = 60.0  # the rules hold up to there
_JOB = "alerts/built/prometheus.yml has the job to add"


def findings(url: str, agent: str, *, token_file: Path | None = None) -> Iterator[Finding]:
    """Yield what the Prometheus at ``url`` says of the agent at ``agent``, an address that ends in HOST:PORT."""
    headers = {"Authorization": f"Bearer {token_file.read_text().strip()}"} if token_file is not None else {}
    base = url if "://" in url else f"http://{url}"
    with httpx2.Client(base_url=base.rstrip("/"), timeout=TIMEOUT, headers=headers) as client:
        try:
            targets = _asked(client, "/api/v1/targets?state=active")["activeTargets"]
            groups = _asked(client, "/api/v1/rules?type=alert")["groups"]
        except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
            yield bad("Prometheus", f"{base}: {str(error) or type(error).__name__}", "check --prometheus")
            return
    yield from _scraped(targets, agent)
    ours = sum(
        rule.get("labels", {}).get("condition") is not None for group in groups for rule in group.get("rules", ())
    )
    if ours:
        yield ok("alert rules", f"{ours} of kvtide's are loaded")
    else:
        mend = "rule_files: alerts/built/*.yml, docs/alerts.md"
        yield warn("alert rules", "none of kvtide's is loaded: nobody is paged", mend)


def _asked(client: httpx2.Client, path: str) -> Any:
    response = client.get(path)
    response.raise_for_status()
    return response.json()["data"]


def _scraped(targets: list[dict[str, Any]], agent: str) -> Iterator[Finding]:
    port = agent.rstrip("/").rpartition(":")[2]
    own = [
        each for each in targets if each.get("scrapeUrl", "").rstrip("/").endswith("/metrics") and _port(each) == port
    ]
    if not own:
        yield bad("scraping", f"no target at port {port}: nobody scrapes this agent", _JOB)
    for target in own:
        where = target.get("scrapeUrl", "")
        if target.get("health") != "up":
            text = f"{where} is {target.get('health')}: {target.get('lastError', '')}"
            yield bad("scraping", text, "can Prometheus reach that address? http.listen")
        elif _seconds(target.get("scrapeInterval", "")) > SLOW_SECONDS:
            text = f"{where} every {target['scrapeInterval']}: alerts hold up to {human_seconds(SLOW_SECONDS)}"
            yield warn("scraping", text, "scrape_interval: 15s")
        else:
            yield ok("scraping", f"{where} every {target.get('scrapeInterval', '?')}")


def _port(target: dict[str, Any]) -> str:
    return str(httpx2.URL(target["scrapeUrl"]).port or 80)


def _seconds(text: str) -> float:
    try:
        return seconds_of(text, "scrapeInterval")
    except ConfigError:
        return 0.0
