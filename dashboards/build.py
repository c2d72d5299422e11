"""``python -m dashboards.build [--check]``: write the boards of ``dashboards/built`` and Grafana's provisioning.

For a policy of your own: ``kvtide dashboards build --policy FILE --out FOLDER``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from agent.policy.types import DEFAULT, Policy
from dashboards import provisioning
from dashboards.board import build
from dashboards.boards import BOARDS

BUILT = Path(__file__).parent / "built"
PROVISIONING = Path(__file__).parent.parent / "deploy" / "grafana" / "provisioning"
HEAD = "# Built by `make generate`; do not edit.\n"


def boards(policy: Policy = DEFAULT) -> dict[str, str]:
    """Return every board as JSON, by its file's name."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    return {f"{each.uid}.json": encoder.encode(build(each, policy)) + "\n" for each in BOARDS}


def provisioned() -> dict[str, str]:
    """Return Grafana's provisioning files, by their paths."""
    return {
        "datasources/kvtide.yaml": HEAD + provisioning.datasource(),
        "dashboards/kvtide.yaml": HEAD + provisioning.dashboards(),
    }


def stale(folder: Path, files: dict[str, str]) -> list[str]:
    """Return the files that are not in ``folder`` as they would be written."""
    return [name for name, text in files.items() if not _is(folder / name, text)]


def write(folder: Path, files: dict[str, str]) -> list[str]:
    """Write what is not there yet as it should be; return its names."""
    changed = stale(folder, files)
    for name in changed:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(files[name], encoding="utf-8")
    return changed


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def main(arguments: list[str]) -> int:
    """Write the files, or with ``--check`` say which are not what would be written; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dashboards.build", description="Write Grafana's boards.")
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 where a file is stale")
    asked = parser.parse_args(arguments)
    act = stale if asked.check else write
    found = [*act(BUILT, boards()), *act(PROVISIONING, provisioned())]
    if found and asked.check:
        print(f"not what `make generate` writes: {', '.join(found)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
