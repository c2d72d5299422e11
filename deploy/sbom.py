"""The bill of materials of a folder of wheels: CycloneDX 1.6, the same for the same wheels."""

from __future__ import annotations

import email.parser
import hashlib
import json
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/schema/bom-1.6.schema.json")


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel: its normalised name, version and digest; its licence as it says it, empty where it does not."""

    name: str
    version: str
    sha256: str
    licence: str
    requires: tuple[Requirement, ...]

    @property
    def purl(self) -> str:
        """What it is called everywhere."""
        return f"pkg:pypi/{self.name}@{self.version}"


def package_of(wheel: Path) -> Package:
    """Return what a wheel says of itself; raises ValueError for one that has no metadata."""
    with zipfile.ZipFile(wheel) as archive:
        found = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA")]
        if len(found) != 1:
            raise ValueError(f"{wheel}: has no metadata")
        told = email.parser.Parser().parsestr(archive.read(found[0]).decode("utf-8"))
    return Package(
        name=canonicalize_name(str(told["Name"])),
        version=str(told["Version"]),
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        licence=_licence(told),
        requires=tuple(Requirement(text) for text in told.get_all("Requires-Dist", [])),
    )


def _licence(told: Message) -> str:
    """An SPDX expression where there is one; else the short name of a classifier, or the first line of a text."""
    if expression := told["License-Expression"]:
        return str(expression)
    for classifier in told.get_all("Classifier", []):
        if classifier.startswith("License :: "):
            return str(classifier.rpartition(" :: ")[2])
    return str(told["License"] or "").strip().partition("\n")[0][:200]


def render(packages: Sequence[Package], extra: str) -> str:
    """Return the bill for ``kvtide[extra]``; what depends on what is as this Python and platform need it."""
    here = {each.name: each for each in packages}
    own = here["kvtide"]
    needs = _needs(here, {own.name: {extra}})
    body: dict[str, Any] = {
        "metadata": {"component": _component(own, "application")},
        "components": [_component(each, "library") for each in packages if each is not own],
        "dependencies": [{"ref": each.purl, "dependsOn": sorted(needs[each.name])} for each in packages],
    }
    serial = uuid.uuid5(_NAMESPACE, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return json.dumps(head | body, indent=2) + "\n"


def _component(package: Package, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": kind,
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "hashes": [{"alg": "SHA-256", "content": package.sha256}],
    }
    if package.licence:
        found["licenses"] = [{"license": {"name": package.licence}}]
    return found


def _needs(here: Mapping[str, Package], extras: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return what each package needs of the others. ``extras``: those asked for, by name; others ask for more."""
    needs: dict[str, set[str]] = {name: set() for name in here}
    todo = list(here)
    while todo:
        name = todo.pop()
        asked = {"", *extras.get(name, ())}
        for requirement in here[name].requires:
            other, marker = canonicalize_name(requirement.name), requirement.marker
            if other not in here or not (marker is None or any(marker.evaluate({"extra": each}) for each in asked)):
                continue
            needs[name].add(here[other].purl)
            known = extras.setdefault(other, set())
            if not requirement.extras <= known:
                known |= requirement.extras
                todo.append(other)
    return needs
