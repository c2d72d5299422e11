"""Files for Prometheus and Alertmanager: built, written, compared with a folder, and read by their own programs."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent.errors import KvtideError
from agent.policy.file import choose
from alerts.build import files
from alerts.rule import Places

SECONDS = 60.0
PROGRAMS = (("promtool", ("check", "rules"), "kvtide-*.yml"), ("amtool", ("check-config",), "alertmanager*.yml"))


def built(policy: str, runbooks: str, grafana: str) -> dict[str, str]:
    """Return every file by its name, for a profile or a policy file; raises :class:`ConfigError`."""
    return files(choose(policy), Places(runbooks, grafana))


def write(folder: Path, texts: Mapping[str, str]) -> list[str]:
    """Write them into ``folder``; return the names of those that were not so before."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(stale(folder, texts))
    for name in names:
        (folder / name).write_text(texts[name], encoding="utf-8")
    return names


def stale(folder: Path, texts: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with the files of ``folder``, by name."""
    wrong = {}
    for name, text in texts.items():
        try:
            if (folder / name).read_text(encoding="utf-8") != text:
                wrong[name] = "not what would be written"
        except FileNotFoundError:
            wrong[name] = "is not there"
        except UnicodeDecodeError:
            wrong[name] = "is not text"
    return wrong


def read_by_programs(folder: Path | None, texts: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield what promtool and amtool make of the files, a line and whether it is right; or that they are not here.

    Without a folder they read what would be written.
    """
    with tempfile.TemporaryDirectory(prefix="kvtide-") as scratch:
        place = folder
        if place is None:
            place = Path(scratch)
            write(place, texts)
        for name, words, pattern in PROGRAMS:
            program, there = shutil.which(name), sorted(place.glob(pattern))
            if program is None:
                yield f"{name} is not on PATH: it has not read the files", True
                continue
            if not there:
                yield f"{place}: no {pattern} for {name} to read", False
                continue
            try:
                ran = subprocess.run(
                    [program, *words, *there], capture_output=True, text=True, timeout=SECONDS, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise KvtideError(f"{program}: {error}") from None
            if ran.returncode == 0:
                yield f"{name}: right", True
            else:
                said = " ".join((ran.stderr or ran.stdout).split())
                yield f"{name}: {said}", False
