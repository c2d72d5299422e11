"""Looks over what the agent's environment is made of: ``python -m deploy.audit``. Part of `make check`.

Offline: every package that is installed is pinned and the pins are what is installed, what they need fits together, and
what the agent is installed with has licences that are allowed. Known vulnerabilities are asked for at OSV where that
answers; where it does not, the last line says "not checked", never that there are none.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PINS = Path(__file__).parents[1] / "constraints" / "agent.txt"
ADVISORIES = "https://api.osv.dev/v1/querybatch"
SECONDS = 10.0
# Part of every environment that pip makes, and never pinned by it; ours is what is looked at.
_OWN = {"pip", "setuptools", "wheel", "kvtide", "kvtide-leak", "kvtide-chaos"}
_SHIPPED = ("agent", "dashboards", "report")  # extras whose licences count: the rest is tools of ours alone
_ALLOWED = re.compile(
    r"\b(MIT|BSD|0BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla|HPND|Unlicense|Zlib)\b", re.IGNORECASE
)


def pins(text: str) -> dict[str, str]:
    """Return names and versions of a constraints file."""
    found = (line.partition("==") for line in text.splitlines() if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): version.split(";")[0].strip() for name, _, version in found}


def licence(package: Distribution) -> str:
    """Return what a package says of its licence; empty where it says nothing."""
    meta = package.metadata
    said = [word for key in ("License-Expression", "License") for word in meta.get_all(key) or ()]
    classes = [each for each in meta.get_all("Classifier") or () if each.startswith("License ::")]
    return " ".join([*(text[:200] for text in said), *classes]).strip()


def shipped(installed: Mapping[str, Distribution], extras: tuple[str, ...] = _SHIPPED) -> set[str]:
    """Return the names of what comes with an installation of ours."""
    found: set[str] = set()
    ahead = [("kvtide", extra) for extra in ("", *extras)]
    while ahead:
        name, extra = ahead.pop()
        for text in (installed[name].requires or ()) if name in installed else ():
            needed = Requirement(text)
            key = canonicalize_name(needed.name)
            if key not in found and _wanted(needed, extra):
                found.add(key)
                ahead += [(key, each) for each in ("", *needed.extras)]
    return found


def _wanted(needed: Requirement, extra: str) -> bool:
    return needed.marker is None or needed.marker.evaluate({"extra": extra})


def faults(installed: Mapping[str, Distribution], pinned: Mapping[str, str], ours: set[str]) -> Iterator[str]:
    """Yield one line for each thing that is not as it should be; ``ours``: whose licence counts."""
    for name, package in sorted(installed.items()):
        if name in _OWN:
            continue
        if name not in pinned:
            yield f"{name} {package.version}: not pinned in {PINS.name}"
        elif Version(pinned[name]) != Version(package.version):
            yield f"{name}: {package.version} is installed, {pinned[name]} is pinned"
        said = licence(package)
        if name in ours and not _ALLOWED.search(said):
            yield f"{name}: its licence is not one of those that are allowed: {said[:80] or 'it says none'}"
        for text in package.requires or ():
            yield from _unmet(name, Requirement(text), installed)


def _unmet(name: str, needed: Requirement, installed: Mapping[str, Distribution]) -> Iterator[str]:
    if not _wanted(needed, ""):
        return
    there = installed.get(canonicalize_name(needed.name))
    if there is None:
        yield f"{name}: needs {needed.name}, which is not installed"
    elif not needed.specifier.contains(there.version, prereleases=True):
        yield f"{name}: needs {needed}, {there.version} is installed"


def advisories(installed: Mapping[str, Distribution], address: str = ADVISORIES) -> list[str] | None:
    """Return known vulnerabilities, None where nobody could be asked."""
    asked: list[Any] = [
        {"package": {"name": name, "ecosystem": "PyPI"}, "version": package.version}
        for name, package in sorted(installed.items())
        if name not in _OWN
    ]
    body = json.dumps({"queries": asked}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - the address is ours
            results = json.load(answer)["results"]
        return [
            f"{each['package']['name']} {each['version']}: {', '.join(found['id'] for found in result['vulns'])}"
            for each, result in zip(asked, results, strict=True)
            if result.get("vulns")
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def main() -> int:
    """Print what was looked at; return 1 where something is wrong."""
    installed: dict[str, Distribution] = {
        canonicalize_name(package.metadata["Name"]): package for package in distributions()
    }
    found = list(faults(installed, pins(PINS.read_text()), shipped(installed)))
    known = advisories(installed)
    for line in (*found, *(known or ())):
        print(line)
    say = "not checked: the advisory service does not answer" if known is None else f"{len(known)} packages have some"
    print(f"{len(installed)} packages; {len(found)} faults in pins, needs and licences; known vulnerabilities: {say}")
    return int(bool(found or known))


if __name__ == "__main__":
    sys.exit(main())
