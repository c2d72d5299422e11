"""The container files: linted, and nothing in the images that need not be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.release.conftest import FILE, stages

HADOLINT = Path(sys.executable).with_name("hadolint")
FILES = sorted(FILE.parent.glob("*Dockerfile"))


@pytest.mark.skipif(not HADOLINT.exists(), reason="there is no hadolint for this processor")
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_the_linter_has_nothing_to_complain(file: Path) -> None:
    done = subprocess.run([str(HADOLINT), "--no-color", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("stage", ["agent", "hooks"])
def test_an_image_is_of_no_root_and_runs_no_shell_at_its_build(stage: str) -> None:
    words = stages()[stage]
    assert ("USER", "65532:65532") in words
    assert "RUN" not in {word for word, _ in words}  # what was needed to install stays in another stage
    copied = [rest for word, rest in words if word == "COPY"]
    assert [each.split()[0] for each in copied] == [f"--from={'install' if stage == 'agent' else 'unpack'}"]


def test_no_stage_asks_a_network() -> None:
    for step in (rest for words in stages().values() for word, rest in words if word == "RUN"):
        assert "--no-index" in step
    assert "ADD" not in {word for words in stages().values() for word, _ in words}


def test_each_base_can_be_pinned_by_its_digest() -> None:
    bases = {rest.partition(" AS ")[0] for words in stages().values() for word, rest in words if word == "FROM"}
    arguments = {rest.partition("=")[0] for word, rest in stages()[""] if word == "ARG"}
    assert bases == {f"${{{name}}}" for name in arguments}
