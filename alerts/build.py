"""``python -m alerts.build [--check]``: write the rules and the routing that are committed in ``alerts/built``.

For a policy and places of your own: ``--policy FILE --runbooks URL --grafana URL --out FOLDER``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agent.policy.file import load
from agent.policy.types import DEFAULT, TEXTBOOK, Policy
from alerts import alertmanager, conditions, examples, prometheus, recording, shards, textbook
from alerts.rule import RUNBOOKS, Places, render

BUILT = Path(__file__).parent / "built"
HEAD = "# Built from the policy and the metric catalogue by `make generate`; do not edit.\n"


def files(policy: Policy = DEFAULT, places: Places | None = None) -> dict[str, str]:
    """Return every file by its name, for ``policy``."""
    rules = {
        "kvtide-recording.yml": recording.groups(policy),
        "kvtide-alerts.yml": conditions.groups(policy),
        "kvtide-textbook.yml": textbook.groups(policy if policy.profile == "textbook" else TEXTBOOK),
        "kvtide-names.yml": recording.names(),
        "kvtide-global.yml": shards.groups(policy),
    }
    built = {name: HEAD + render(groups, places) for name, groups in rules.items()}
    built["alertmanager.yml"] = HEAD + alertmanager.render()
    built["alertmanager-examples.yml"] = HEAD + examples.render()
    built["prometheus.yml"] = HEAD + prometheus.render("15s")
    built["prometheus-detail.yml"] = HEAD + prometheus.render("15s", detail=True)
    built["prometheus-fast.yml"] = HEAD + prometheus.render("1s")
    return built


def main(arguments: list[str]) -> int:
    """Write the files, or with ``--check`` say which are not what would be written; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m alerts.build", description="Write Prometheus' and Alertmanager's files."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 where a file is stale")
    parser.add_argument("--policy", type=Path, help="a policy file; default: the default policy")
    parser.add_argument("--runbooks", default=RUNBOOKS, help="what comes before a runbook's name")
    parser.add_argument("--grafana", default="", help="address of the Grafana that has the boards")
    parser.add_argument("--out", type=Path, default=BUILT, help="the folder to write to")
    asked = parser.parse_args(arguments)
    policy = load(asked.policy) if asked.policy else DEFAULT
    stale = []
    for name, text in files(policy, Places(asked.runbooks, asked.grafana)).items():
        target = asked.out / name
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not asked.check:
            asked.out.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    if stale and asked.check:
        print(f"{asked.out}: not what `make generate` writes: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
