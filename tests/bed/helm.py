"""The chart, rendered by the real helm, and patches applied by the real kubectl; no cluster is asked."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.bed import server

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "kvtide"
EXAMPLES = ROOT / "deploy" / "helm" / "examples"
PROGRAMS = ROOT / "build" / "helm"
SECONDS = 60.0

Object = dict[str, Any]


def program(name: str) -> str:
    """Return the path of ``helm`` or ``kubectl``; raises ``RuntimeError`` where it is not here or does not run."""
    found = server.program(PROGRAMS / name)
    try:
        subprocess.run([found, "--help"], capture_output=True, check=True, timeout=SECONDS)
    except OSError as error:  # built for another processor
        raise RuntimeError(f"{found} does not run here: {error}") from None
    return found


def helm(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run helm; its exit status is looked at by the caller."""
    command = [str(PROGRAMS / "helm"), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=SECONDS)


def rendered(*options: str, chart: Path = CHART) -> list[Object]:
    """Return the objects of a release ``kvtide`` in the namespace ``kvtide``; raises ``RuntimeError`` as helm says."""
    done = helm("template", "kvtide", str(chart), "--namespace", "kvtide", *options)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def one(objects: Sequence[Object], kind: str, name: str) -> Object:
    """Return the object; raises ValueError where there is none, or more than one."""
    (found,) = (each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name)
    return found


def kubectl(*arguments: str) -> str:
    """Return what kubectl writes; raises ``RuntimeError`` with what it says."""
    done = subprocess.run(
        [str(PROGRAMS / "kubectl"), *arguments], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def patched(deployment: Path, patch: Path) -> Object:
    """Return the Deployment with the patch, as `kubectl patch --patch-file` would send it."""
    command = ("patch", "--local", "--filename", str(deployment), "--patch-file", str(patch), "--output", "yaml")
    found: Object = yaml.safe_load(kubectl(*command))
    return found
