"""Write docs/metrics.md from the catalogue: ``python -m exporters.docs [--check]``."""

from __future__ import annotations

import sys
from pathlib import Path

from exporters.catalogue import CATALOGUE

TARGET = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"


def render() -> str:
    """Return the page."""
    lines = [
        "# Metrics",
        "",
        "Generated from `exporters/catalogue/` by `make generate`; do not edit.",
        "",
        "A value that is not known makes no sample: absent, zero and failed are three things.",
        "",
        "What alerts and recording rules read is on `/metrics`, and most of what boards show. The rest is on",
        "`/metrics/detail`, which may be scraped more rarely, or not at all: no family is on both.",
        "",
        "| metric | type | unit | labels | meaning | endpoint | since |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{m.name}` | {m.type} | {m.unit} | {', '.join(m.labels) or '-'} | {m.help} | `{m.endpoint}` | {m.since} |"
        for m in CATALOGUE
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` say whether the one in the tree is fresh."""
    if arguments == ["--check"]:
        fresh = TARGET.exists() and TARGET.read_text() == render()
        sys.stdout.write("docs/metrics.md is fresh\n" if fresh else "docs/metrics.md is stale: run make generate\n")
        return 0 if fresh else 1
    TARGET.write_text(render())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
