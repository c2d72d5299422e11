"""What a release is made of, built once: a wheelhouse, and what the container file's steps make of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.wheelhouse import fill

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "container" / "Dockerfile"
SECONDS = 120.0


def stages() -> dict[str, list[tuple[str, str]]]:
    """The container file's instructions by stage, each with what follows it, comments and line ends left out."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", FILE.read_text(), flags=re.M))
    found: dict[str, list[tuple[str, str]]] = {}
    stage = ""
    for line in filter(None, text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stage = rest.rpartition(" AS ")[2]
        found.setdefault(stage, []).append((word, rest))
    return found


def run_steps(stage: str, places: dict[str, Path]) -> None:
    """Run the stage's RUN steps here, with folders of its image in other ``places``; no index can be asked."""
    for step in [rest for word, rest in stages()[stage] if word == "RUN"]:
        here = step
        for folder, place in places.items():
            here = here.replace(folder, str(place))
        env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PIP_CONFIG_FILE": os.devnull}
        env["PIP_NO_COMPILE"] = (
            "no"  # pip's way to switch compiling off: it is half of the time, and changes nothing here
        )
        done = subprocess.run(
            ["sh", "-ec", here], env=env, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "wheelhouse"
    fill(folder)
    return folder


@pytest.fixture(scope="session")
def installed(wheelhouse: Path) -> Path:
    """The agent's image's /opt/kvtide: a clean environment, from the wheelhouse alone."""
    place = wheelhouse.parent / "kvtide"
    run_steps("install", {"/opt/kvtide": place, "/wheelhouse": wheelhouse})
    return place


@pytest.fixture(scope="session")
def hooks(wheelhouse: Path) -> Path:
    """What the init container copied into an engine's pod."""
    unpacked, place = wheelhouse.parent / "unpacked", wheelhouse.parent / "hooks"
    run_steps("unpack", {"/hooks": unpacked, "/wheelhouse": wheelhouse})
    place.mkdir()
    (entry,) = (rest for word, rest in stages()["hooks"] if word == "ENTRYPOINT")
    command = [each.replace("/hooks/.", f"{unpacked}/.") for each in json.loads(entry)]
    subprocess.run([*command, str(place)], check=True, timeout=SECONDS)
    return place
