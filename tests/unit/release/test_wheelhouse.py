"""An installation without a network: digests, the bill of materials, and what runs when it is installed from it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from alerts.build import files
from dashboards.build import BUILT
from deploy import sbom
from deploy.wheelhouse import build, fill
from engine_hooks import __version__
from tests.bed import net
from tests.unit.release.conftest import ROOT, SECONDS

WHEEL = f"kvtide-{__version__}-py3-none-any.whl"
FOLDERS = ("agent", "alerts", "dashboards", "engine_hooks", "exporters")


def run(installed: Path, *arguments: str, code: int = 0) -> str:
    """Run the installed kvtide, far from the checkout."""
    done = subprocess.run(
        [str(installed / "bin" / "kvtide"), *arguments],
        cwd="/",
        env={"PATH": os.environ["PATH"], "NO_COLOR": "1", "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_the_digests_are_those_of_the_files(wheelhouse: Path) -> None:
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=wheelhouse, check=False).returncode == 0
    listed = {line.split()[1] for line in (wheelhouse / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in wheelhouse.iterdir()} - {"SHA256SUMS"}


def test_every_wheel_is_of_the_pinned_version(wheelhouse: Path) -> None:
    lines = (ROOT / "constraints" / "agent.txt").read_text().splitlines()
    pins = dict(line.lower().replace("_", "-").split("==") for line in lines if "==" in line)
    wanted = (wheelhouse / "requirements.txt").read_text().splitlines()
    assert len(wanted) == len([*wheelhouse.glob("*.whl")])
    for line in wanted:
        name, version = re.match(r"([a-z0-9.-]+)(?:\[agent\])?==(\S+) --hash=sha256:[0-9a-f]{64}$", line).groups()  # type: ignore[union-attr]
        assert version == (__version__ if name == "kvtide" else pins[name])


def test_the_bill_of_materials_names_all_and_what_needs_what(wheelhouse: Path) -> None:
    bill = json.loads((wheelhouse / "sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    parts = [bill["metadata"]["component"], *bill["components"]]
    sums = dict(map(str.split, (wheelhouse / "SHA256SUMS").read_text().splitlines()))
    assert {sums[part["hashes"][0]["content"]] for part in parts} == {path.name for path in wheelhouse.glob("*.whl")}
    assert [part["name"] for part in parts if "licenses" not in part] == []
    needs = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert set(needs) == {part["bom-ref"] for part in parts}
    reached, todo = set(), [bill["metadata"]["component"]["bom-ref"]]
    while todo:
        reached.add(one := todo.pop())
        todo += [each for each in needs[one] if each not in reached]
    assert reached == set(needs)  # nothing is in it that nobody needs


def test_the_bill_is_the_same_for_the_same_wheels(wheelhouse: Path) -> None:
    packages = [sbom.package_of(path) for path in sorted(wheelhouse.glob("*.whl"))]
    packages.sort(key=lambda each: each.name)
    assert sbom.render(packages, "agent") == (wheelhouse / "sbom.cdx.json").read_text()
    assert sbom.render([each for each in packages if each.name != "rich"], "agent") != sbom.render(packages, "agent")


def test_a_folder_that_has_something_in_it_is_left_alone(wheelhouse: Path) -> None:
    before = {path.name for path in wheelhouse.iterdir()}
    with pytest.raises(FileExistsError, match="is not empty"):
        fill(wheelhouse)
    assert {path.name for path in wheelhouse.iterdir()} == before


def test_a_wheel_that_was_exchanged_is_refused(wheelhouse: Path, installed: Path, tmp_path: Path) -> None:
    for path in wheelhouse.iterdir():
        (tmp_path / path.name).hardlink_to(path)
    (tmp_path / WHEEL).unlink()
    with zipfile.ZipFile(wheelhouse / WHEEL) as whole, zipfile.ZipFile(tmp_path / WHEEL, "w") as other:
        for name in whole.namelist():
            other.writestr(name, whole.read(name) + (b"\n" if name == "agent/__init__.py" else b""))
    command = [str(ROOT / ".venv" / "agent" / "bin" / "python"), "-m", "pip", "install", "--dry-run", "--no-index"]
    command += ["--ignore-installed", "--find-links", str(tmp_path), "--require-hashes"]
    command += ["-r", str(tmp_path / "requirements.txt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_the_wheel_has_what_its_commands_read_and_nothing_else(wheelhouse: Path) -> None:
    names = zipfile.ZipFile(wheelhouse / WHEEL).namelist()
    info = f"kvtide-{__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {*FOLDERS, info}
    assert {f"dashboards/built/{path.name}" for path in BUILT.iterdir()} <= set(names)
    assert f"{info}/licenses/LICENSE" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".so"))]
    assert all(name.endswith((".py", ".json", ".yml", "py.typed")) for name in names if not name.startswith(info))


def test_the_sdist_builds_the_same_wheel(wheelhouse: Path, tmp_path: Path) -> None:
    sdist = build(tmp_path, "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    place = tmp_path / sdist.name.removesuffix(".tar.gz")
    command = [str(ROOT / ".venv" / "agent" / "bin" / "python"), "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=SECONDS)
    with zipfile.ZipFile(place / "dist" / WHEEL) as one, zipfile.ZipFile(wheelhouse / WHEEL) as other:
        assert one.namelist() == other.namelist()
        for name in ("METADATA", "entry_points.txt"):
            told = f"kvtide-{__version__}.dist-info/{name}"
            assert one.read(told) == other.read(told)


def test_what_is_installed_is_what_the_wheelhouse_has_and_no_pip(wheelhouse: Path, installed: Path) -> None:
    (site,) = installed.glob("lib/python3*/site-packages")
    there = {path.name.partition("-")[0].lower() for path in site.glob("*.dist-info")}
    assert there == {path.name.partition("-")[0].lower() for path in wheelhouse.glob("*.whl")}


def test_commands_of_the_installed_wheel(installed: Path, tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{net.free_port()}"
    assert run(installed, "--version") == f"kvtide {__version__}\n"
    assert run(installed, "version", "--url", nobody).startswith(f"kvtide {__version__}, wire ")
    run(installed, "alerts", "build", "--out", str(tmp_path / "rules"))
    assert {path.name: path.read_text() for path in (tmp_path / "rules").iterdir()} == files()
    assert "use.warn_ratio" in run(installed, "policy", "explain", "use.warn_ratio")
    assert "--view" in run(installed, "top", "--help")
    assert "grafana" in run(installed, "dashboards", "--help").lower()
    assert "kvtide[dashboards]" in run(installed, "dashboards", "build", "--out", str(tmp_path / "boards"), code=1)


def test_the_agent_of_the_installed_wheel_runs(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "bin" / "kvtide"), "agent", "--socket", str(tmp_path / "s"), "--listen", "127.0.0.1:0"]
    env = {"PATH": os.environ["PATH"], "KVTIDE_STATE_DIRECTORY": str(tmp_path / "state")}
    with subprocess.Popen(command, cwd="/", env=env, stdout=subprocess.PIPE, text=True) as agent:
        try:
            assert agent.stdout is not None
            url = agent.stdout.readline().split()[-1]
            assert net.get(f"{url}/-/ready") == "ready\n"
            assert "kvtide_build_info" in net.get(f"{url}/metrics")
            assert f"agent at {url}: {__version__}, wire" in run(installed, "version", "--url", url)
        finally:
            agent.send_signal(signal.SIGTERM)
    assert agent.returncode == 0


def told(python: Path, path: list[Path], code: str) -> Any:
    """What ``code`` prints as JSON, with nothing but ``path`` and the standard library to import from."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(map(str, path)), "KVTIDE_SOCKET": "/proc/none/agent.sock"}
    command = [str(python), "-S", "-c", code]
    done = subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_only_what_runs_in_an_engine_is_on_its_path(hooks: Path) -> None:
    assert {path.name for path in hooks.iterdir()} == {"engine_hooks", f"kvtide-{__version__}.dist-info"}


def test_the_hooks_are_found_beside_vllm(hooks: Path, tmp_path: Path) -> None:
    """The real vLLM of the engine's environment, without the kvtide that is installed there for other tests."""
    engine = ROOT / ".venv" / "engine"
    (site,) = engine.glob("lib/python3*/site-packages")
    if not (site / "vllm").exists():
        pytest.skip("there is no engine environment: make setup")
    for path in site.iterdir():
        if "kvtide" not in path.name and path.suffix != ".pth":
            (tmp_path / path.name).symlink_to(path)
    code = (
        "import json, sys\n"
        "from vllm.plugins import load_plugins_by_group\n"
        "found = load_plugins_by_group('vllm.general_plugins')['kvtide']\n"
        "import engine_hooks\n"
        "print(json.dumps([found.__module__, found.__name__, engine_hooks.__file__, engine_hooks.__version__]))"
    )
    found = told(engine / "bin" / "python", [hooks, tmp_path], code)
    file = str(hooks / "engine_hooks" / "__init__.py")
    assert found == ["engine_hooks.plugin", "register", file, __version__]
