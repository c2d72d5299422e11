"""Build all that an installation without a network needs: ``python -m deploy.wheelhouse FOLDER [--pip ARGUMENT ...]``.

Our wheel, those of the agent as they are pinned, their digests (``SHA256SUMS``, and ``requirements.txt`` for pip), and
a bill of materials (``sbom.cdx.json``, CycloneDX).
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.sbom import Package, package_of, render

ROOT = Path(__file__).parent.parent
EXTRA = "agent"
CONSTRAINTS = ROOT / "constraints" / "agent.txt"
_ENDINGS = {"wheel": ".whl", "sdist": ".tar.gz"}


def build(folder: Path, target: str = "wheel") -> Path:
    """Build our wheel or sdist into ``folder``, with the pinned hatchling of this environment; return its path.

    There must be no other version of it in ``folder``.

    Raises :class:`subprocess.CalledProcessError`.
    """
    # The folder's path is absolute: hatchling takes it from where it builds.
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder.absolute())]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob(f"kvtide-*{_ENDINGS[target]}")
    return path


def fill(folder: Path, pip: Sequence[str] = ()) -> list[Package]:
    """Fill an empty ``folder``; ``pip``: more arguments, such as another platform. Return what is in it.

    Raises :class:`subprocess.CalledProcessError`, and ``FileExistsError`` where something is there already.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder}: is not empty")
    wheel = build(folder)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--only-binary", ":all:", "--constraint", str(CONSTRAINTS), "--dest", str(folder), *pip]
    subprocess.run([*command, f"{wheel}[{EXTRA}]"], check=True)
    packages = sorted((package_of(path) for path in folder.glob("*.whl")), key=lambda each: each.name)
    lines = [f"{_named(each)} --hash=sha256:{each.sha256}\n" for each in packages]
    (folder / "requirements.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "sbom.cdx.json").write_text(render(packages, EXTRA), encoding="utf-8")
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return packages


def _named(package: Package) -> str:
    extra = f"[{EXTRA}]" if package.name == "kvtide" else ""
    return f"{package.name}{extra}=={package.version}"


def main(arguments: list[str]) -> int:
    """Build it and say what is in it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.wheelhouse", description="Build an offline installation.")
    parser.add_argument("folder", type=Path, help="an empty folder, or one that is not there yet")
    parser.add_argument("--pip", nargs=argparse.REMAINDER, default=[], help="all that follows is for pip download")
    asked = parser.parse_args(arguments)
    try:
        packages = fill(asked.folder, asked.pip)
    except FileExistsError as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        return error.returncode
    print(f"{asked.folder}: {len(packages)} wheels, requirements.txt, SHA256SUMS, sbom.cdx.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
