"""Which clients get a compressed body: those that ask for one, and nobody who does not take it."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from exporters.encodings import takes_gzip
from exporters.http import build_app
from exporters.text import CONTENT_TYPE
from tests.unit.builders import make_state

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("gzip", True),  # Prometheus
        ("deflate, gzip, br, zstd", True),  # curl
        ("GZip;Q=0.5", True),
        ("x-gzip", True),
        ("*", True),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", True),
        ("gzip;q=1.0, identity;q=0.5", True),
        ("", False),
        ("identity", False),
        ("br", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("gzip;q=0, *", False),
        ("*;q=0", False),
        ("gzip;q=0.2, identity;q=0.9", False),
        ("notgzip, gzip-not", False),
        ("gzip;q=much", False),
        ("gzip;q=7", False),
        ("gzip;q=nan", False),
        ("gzip;level=9", False),
        (";q=1", False),
    ],
)
def test_what_a_client_takes(header: str, taken: bool) -> None:
    assert takes_gzip([header]) is taken


def test_several_headers_are_one_list() -> None:
    assert takes_gzip(["br", "gzip"])
    assert not takes_gzip(["br", "identity"])
    assert not takes_gzip([])


@given(st.lists(st.text(max_size=40), max_size=3))
def test_any_header_is_an_answer(headers: list[str]) -> None:
    assert takes_gzip(headers) in (True, False)


@pytest.mark.parametrize("accept", [PROMETHEUS, "*/*", "text/plain", "application/openmetrics-text"])
def test_whoever_asks_gets_the_text_format_and_is_told_that_it_is_that(accept: str) -> None:
    """It is what every scraper reads, whatever it likes best; the content type says which one it is."""
    response = TestClient(build_app(make_state)).get("/metrics", headers={"Accept": accept})
    assert response.status_code == 200
    assert response.headers["content-type"] == CONTENT_TYPE
    assert not response.text.endswith("# EOF\n"), "that would be OpenMetrics"


@pytest.mark.parametrize("header", ["gzip", "gzip;q=0"])
@pytest.mark.parametrize(
    ("path", "family"), [("/metrics", b"kvtide_build_info"), ("/metrics/detail", b"kvtide_detail_supported")]
)
def test_the_body_is_what_the_headers_say(path: str, family: bytes, header: str) -> None:
    with TestClient(build_app(make_state)).stream("GET", path, headers={"Accept-Encoding": header}) as response:
        raw = b"".join(response.iter_raw())
    packed = response.headers.get("content-encoding") == "gzip"
    assert packed is takes_gzip([header])
    assert response.headers["vary"] == "Accept-Encoding"
    assert int(response.headers["content-length"]) == len(raw)
    body = gzip.decompress(raw) if packed else raw
    assert b"# TYPE " + family in body
    assert (b"# TYPE kvtide_build_info" in body) is (path == "/metrics"), "no family is on both pages"
