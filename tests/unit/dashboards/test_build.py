"""What is committed is what is built."""

from __future__ import annotations

import yaml

from dashboards import build
from dashboards.boards import BOARDS


def test_the_boards_that_are_committed_are_those_that_are_built() -> None:
    assert build.stale(build.BUILT, build.boards()) == [], "make generate"
    assert build.stale(build.PROVISIONING, build.provisioned()) == [], "make generate"
    assert {path.name for path in build.BUILT.iterdir()} == {f"{board.uid}.json" for board in BOARDS}


def test_the_data_source_says_how_often_is_scraped() -> None:
    """Without it Grafana takes 15 s for granted, and $__rate_interval is too short for slower scrapes."""
    (source,) = yaml.safe_load(build.provisioned()["datasources/kvtide.yaml"])["datasources"]
    assert source["jsonData"]["timeInterval"] == "15s"
    (provider,) = yaml.safe_load(build.provisioned()["dashboards/kvtide.yaml"])["providers"]
    assert provider["folderUid"] == "kvtide"
