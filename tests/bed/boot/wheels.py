"""Wheels of the agent and of all that it needs, for an installation without a network."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
PIP = ROOT / ".venv" / "agent" / "bin" / "pip"
FOLDER = ROOT / "build" / "agent-wheels"
_CONSTRAINTS = ROOT / "constraints" / "agent.txt"


def wheels() -> Path:
    """Return a folder with them: ours is built anew, the others are fetched when the constraints have changed."""
    stamp, wanted = FOLDER / ".constraints", _CONSTRAINTS.read_text()
    quiet = ["-q", "--disable-pip-version-check"]
    if not stamp.exists() or stamp.read_text() != wanted:
        command = [PIP, "wheel", *quiet, "-c", _CONSTRAINTS, "-w", FOLDER, f"{ROOT}[agent]"]
        subprocess.run(command, check=True, capture_output=True)
        stamp.write_text(wanted)
    for old in FOLDER.glob("kvtide-*.whl"):
        old.unlink()
    command = [PIP, "wheel", *quiet, "--no-deps", "--no-build-isolation", "-w", FOLDER, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    return FOLDER
