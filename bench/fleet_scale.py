"""``python -m bench.fleet_scale``: what one Prometheus costs that scrapes a fleet, with all our rules.

Nodes are pages of one process here: each what the real exporter writes of a busy node (eight GPUs, eight engines, fifty
tenants), with numbers that move. On one node in twenty an engine has all faults that there are; on the others all are
well. Prometheus is the real one, with the configuration that is shipped but for its targets. Bounded: ``--nodes`` 200,
``--seconds`` 180. Its numbers are in docs/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from alerts import prometheus
from alerts.build import BUILT
from bench.rows import Row, table
from exporters.exposition import Exposition
from tests.bed import net
from tests.bed.fleet import Fleet
from tests.bed.prometheus import PrometheusServer, program
from tests.unit.busy_node import busy_node

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20
MOST_NODES, MOST_SECONDS = 1000, 900
FAULTY_EACH = 20
PATIENCE = 120.0


def _asked(server: PrometheusServer, name: str, query: str, unit: str) -> list[Row]:
    """Return a row of what ``query`` gives; none where that is nothing, as before the second scrape."""
    answer = json.loads(net.get(f"{server.url}/api/v1/query?query={quote(query)}", timeout=PATIENCE))
    result = answer["data"]["result"]
    return [Row(name, float(each["value"][1]), unit) for each in result[:1]]


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / MIB


def _groups(server: PrometheusServer) -> dict[str, float]:
    """Return the longest that a look at each group of rules took in the last minutes, in seconds."""
    query = "max_over_time(prometheus_rule_group_last_duration_seconds[2m])"
    answer = json.loads(net.get(f"{server.url}/api/v1/query?query={quote(query)}", timeout=PATIENCE))
    return {
        each["metric"]["rule_group"].rpartition(";")[2]: float(each["value"][1]) for each in answer["data"]["result"]
    }


def well(text: str) -> str:
    """Return a busy node's page without its faults: no verdict, the first engine and GPU as the second."""
    kept = []
    for line in text.splitlines():
        if re.match(r"kvtide_verdict\b", line) or re.search(r'(engine="m0"|gpu="0")', line):
            continue
        kept.append(line)
        if re.search(r'(engine="m1"|gpu="1")', line):
            kept.append(line.replace('engine="m1"', 'engine="m0"').replace('gpu="1"', 'gpu="0"'))
    return "\n".join(kept) + "\n"


def _config(interval: str, fleet: Fleet, own: str) -> dict[str, Any]:
    config = prometheus.config(interval)
    config["rule_files"] = [str(BUILT / name) for name in config["rule_files"]]
    del config["alerting"]
    config["scrape_configs"] = [
        {"job_name": prometheus.JOB, "static_configs": fleet.targets()},
        {"job_name": "itself", "static_configs": [{"targets": [own]}]},
    ]
    return config


def measure(nodes: int, seconds: float, interval: str, *, newer: bool = False) -> list[Row]:
    """Return the rows, after ``seconds`` of scraping ``nodes`` each ``interval``."""
    text = Exposition().render(busy_node(), compressed=False).decode()
    faulty = dict.fromkeys(range(0, nodes, FAULTY_EACH), text)
    with tempfile.TemporaryDirectory() as name, Fleet(nodes, well(text), faulty) as fleet:
        own = f"127.0.0.1:{net.free_port()}"
        with PrometheusServer(
            Path(name),
            more=_config(interval, fleet, own),
            binary=program("prometheus", newer=newer),
            port=int(own.rpartition(":")[2]),
        ) as server:
            return _running(server, seconds)


def _running(server: PrometheusServer, seconds: float) -> list[Row]:
    pid, job = server.process.pid, f'{{job="{prometheus.JOB}"}}'
    time.sleep(seconds / 2)
    before, began = _processor_seconds(pid), time.monotonic()
    time.sleep(seconds / 2)
    cores = (_processor_seconds(pid) - before) / (time.monotonic() - began)
    groups = _groups(server)
    return [
        *_asked(server, "nodes_up", f"sum(up{job})", "nodes"),
        *_asked(server, "series_of_a_node", f"max(scrape_samples_scraped{job})", "series"),
        *_asked(server, "series", "prometheus_tsdb_head_series", "series"),
        *_asked(server, "of_these_alerts", 'count(ALERTS{alertstate="firing"})', "series"),
        *_asked(server, "of_these_recorded", 'count({__name__=~".+:.+:.+"})', "series"),
        *_asked(server, "samples", "rate(prometheus_tsdb_head_samples_appended_total[4m])", "per second"),
        Row("resident_most", _resident_mib(pid), "MiB"),
        Row("processor", cores, "cores"),
        *_asked(server, "scrape_median", f"quantile(0.5, scrape_duration_seconds{job})", "seconds"),
        *_asked(server, "scrape_p99", f"quantile(0.99, scrape_duration_seconds{job})", "seconds"),
        *(Row(f"rules_{group}", took, "seconds") for group, took in sorted(groups.items())),
        Row("rules_all", sum(groups.values()), "seconds"),
    ]


def main() -> int:
    """Measure what was asked for and print it."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet_scale", description="What a fleet costs Prometheus.")
    parser.add_argument("--nodes", type=int, default=200, help=f"how many (default 200, {MOST_NODES} at most)")
    parser.add_argument("--seconds", type=float, default=180.0, help=f"how long (default 180, {MOST_SECONDS} at most)")
    parser.add_argument("--interval", default="15s", help="between two scrapes (default 15s)")
    parser.add_argument("--newer", action="store_true", help="by Prometheus 3, where make setup could lay it")
    asked = parser.parse_args()
    if not (0 < asked.nodes <= MOST_NODES and 0 < asked.seconds <= MOST_SECONDS):
        parser.error(f"at most {MOST_NODES} nodes for {MOST_SECONDS} s")
    print(table(measure(asked.nodes, asked.seconds, asked.interval, newer=asked.newer)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
