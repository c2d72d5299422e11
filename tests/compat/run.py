"""Runs tests/compat on the versions of constraints/compat.txt: ``python -m tests.compat.run [--check] [VERSION...]``.

Runs in the engine environment. Each version gets a process of its own, with that version first on its path. What was
found goes into docs/compatibility.md; with ``--check`` it must be what the page says already.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.compat.fetch import FOLDER, PINS, ROOT, Pin, fetch, parse_pins
from tests.compat.page import PAGE, RECORDED, Result, dump, load, render

TEST_SECONDS = 900
SHOWN_LINES = 40


def say(text: str) -> None:
    """Print one line at once."""
    print(f"[kvtide] {text}", flush=True)


def environment(pin: Pin) -> dict[str, str]:
    """Return the environment for a process that imports this version."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("KVTIDE", "VLLM"))},
        # The test engine's environment has plugins of its own vLLM, which another version can't load.
        "VLLM_PLUGINS": "kvtide",
        "VLLM_CACHE_ROOT": str(FOLDER / f"cache-{pin.version}"),
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONPATH": "" if pin.installed else str(pin.folder),
    }


def test(pin: Pin) -> Result:
    """Fetch ``pin`` and run the tests on it. Raises ``RuntimeError`` when that gave no result for this version."""
    began = time.monotonic()
    fetched = fetch(pin)
    ready = time.monotonic()
    log = FOLDER / f"{pin.version}.log"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, log.open("w") as output:
        file = Path(folder) / "result.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/compat"]
        subprocess.run(
            [*command, "--compat-result", str(file)],
            cwd=ROOT,
            env=environment(pin),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=TEST_SECONDS,
            check=False,
        )
        text = file.read_text() if file.exists() else "{}"
    found = json.loads(text)
    if found.get("version") != pin.version or not found["collected"]:
        raise RuntimeError(f"vLLM {pin.version} was not tested ({found or 'no result'}):\n{tail(log)}")
    took = (
        f"{'fetched in' if fetched else 'there in'} {ready - began:.0f} s, tested in {time.monotonic() - ready:.0f} s"
    )
    if found["failed"]:
        say(f"vLLM {pin.version}: {len(found['failed'])} of {found['collected']} tests fail ({took}):\n{tail(log)}")
    else:
        say(f"vLLM {pin.version}: {found['collected']} tests pass ({took})")
    return {key: found[key] for key in ("version", "failed", "capabilities")}


def tail(log: Path) -> str:
    """Return a log's last lines."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-SHOWN_LINES:])


def differences(results: Sequence[Result], recorded: Sequence[Result]) -> list[str]:
    """Return in words where ``results`` are not what is recorded for their versions."""
    known = {result["version"]: result for result in recorded}
    found = []
    for result in results:
        version, before = result["version"], known.get(result["version"])
        if before is None:
            found.append(f"{version} is not on the page")
            continue
        names = sorted({*result["capabilities"], *before["capabilities"]})
        for name in names:
            now, then = result["capabilities"].get(name), before["capabilities"].get(name)
            if now != then:
                found.append(f"{version}: {name}: {now}, the page says {then}")
        if result["failed"] != before["failed"]:
            found.append(f"{version}: failed tests: {result['failed']}, the page says {before['failed']}")
    return found


def main(arguments: Sequence[str]) -> int:
    """Run; return 1 when a test fails or the page is not what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", help="only these; default: all that are pinned")
    parser.add_argument("--ends", action="store_true", help="only the oldest and the newest version")
    parser.add_argument("--check", action="store_true", help="compare with the page instead of writing it")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="versions at a time")
    options = parser.parse_args(arguments)
    pins = parse_pins(PINS.read_text())
    chosen = [pins[0], pins[-1]] if options.ends else pins
    if options.versions:
        chosen = [pin for pin in pins if pin.version in options.versions]
        if len(chosen) != len(set(options.versions)):
            parser.error(f"{PINS.name} has {', '.join(pin.version for pin in pins)}")
    recorded = load() if RECORDED.exists() else []
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            results = list(pool.map(test, chosen))
    except (RuntimeError, subprocess.SubprocessError) as error:
        say(str(error))
        return 1
    failed = any(result["failed"] for result in results)
    if options.check:
        stale = differences(results, recorded)
        if PAGE.read_text() != render(recorded):
            stale.append(f"{PAGE.name} is not what its generator makes")
        for line in stale:
            say(line)
        say("docs/compatibility.md is stale: run make compat" if stale else "docs/compatibility.md is fresh")
        return 1 if stale or failed else 0
    merged = {result["version"]: result for result in (*recorded, *results)}
    recorded = [merged[pin.version] for pin in pins if pin.version in merged]
    RECORDED.write_text(dump(recorded))
    PAGE.write_text(render(recorded))
    say("wrote docs/compatibility.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
