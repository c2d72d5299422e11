"""Where tenants' names come from, as the environment and the map say; a bad value never stops an engine."""

from __future__ import annotations

import ipaddress
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from engine_hooks.frontend.settings import DEFAULT_SOURCES, TenantSettings
from engine_hooks.frontend.tenant_map import MAX_FILE_BYTES, Quota, TenantMap, TenantMapError, read_map
from engine_hooks.names import MAX_NAME, printable, short_hash


def read(**env: str) -> TenantSettings:
    return TenantSettings.from_environment({f"KVTIDE_{name}": value for name, value in env.items()})


def write(folder: Path, content: Any) -> Path:
    file = folder / "tenants.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def warned_once(caplog: pytest.LogCaptureFixture, name: str) -> None:
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert name in record.getMessage()
    assert "\n" not in record.getMessage()


# -- environment ------------------------------------------------------------------------------------------------


def test_defaults(caplog: pytest.LogCaptureFixture) -> None:
    assert read() == read(TENANT_FROM=" ", SESSION_HEADER="", TRUSTED_PROXIES=" ", TENANT_MAP="") == TenantSettings()
    assert read().sources == ("api_key", "cache_salt", "lora", "user")
    assert not any(source.startswith("header") for source in DEFAULT_SOURCES)
    assert not caplog.records


def test_every_variable(tmp_path: Path) -> None:
    settings = read(
        TENANT_FROM="header:X-Tenant , user,api_key,user",
        SESSION_HEADER=" X-Talk ",
        TRUSTED_PROXIES="10.0.0.0/8, ::1,unix",
        TENANT_MAP=str(write(tmp_path, {"acme": {"quota_blocks": 3}})),
    )
    assert settings.sources == ("header:x-tenant", "user", "api_key")
    assert settings.session_header == "x-talk"
    assert settings.proxies == (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::1/128"))
    assert settings.unix_trusted
    assert settings.map.quotas == {"acme": Quota(blocks=3)}
    assert settings.headers == {b"x-tenant", b"x-talk", b"authorization"}


@pytest.mark.parametrize(
    "text",
    ["cookie", "user,,api_key", "header", "header:", "header:a b", "header:é", "API_KEY", "header:Authorization"],
)
def test_bad_sources(text: str, caplog: pytest.LogCaptureFixture) -> None:
    assert read(TENANT_FROM=text).sources == DEFAULT_SOURCES
    warned_once(caplog, "KVTIDE_TENANT_FROM")


@pytest.mark.parametrize("text", ["a b", "x:y", "é"])
def test_bad_session_header(text: str, caplog: pytest.LogCaptureFixture) -> None:
    assert read(SESSION_HEADER=text).session_header == "x-session-id"
    warned_once(caplog, "KVTIDE_SESSION_HEADER")


@pytest.mark.parametrize("text", ["proxy.local", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.1,,10.0.0.2", "unix,nobody"])
def test_bad_proxies_are_none(text: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = read(TRUSTED_PROXIES=text)
    assert (settings.proxies, settings.unix_trusted) == ((), False)
    warned_once(caplog, "KVTIDE_TRUSTED_PROXIES")


@pytest.mark.parametrize("content", [None, "", "[1]", '{"acme": {"quota": 3}}'])
def test_bad_map_is_none(content: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "missing.json" if content is None else write(tmp_path, content)
    assert read(TENANT_MAP=str(path)).map == TenantMap()
    warned_once(caplog, "KVTIDE_TENANT_MAP")


# -- the map ----------------------------------------------------------------------------------------------------


def test_a_map(tmp_path: Path) -> None:
    mapped = read_map(
        write(
            tmp_path,
            {
                "acme": {"values": ["api_key:5f70bf18a086", "header:X-Tenant:A:1"], "quota_ratio": 0.25},
                "umbrella": {"quota_blocks": 0},
                "third": {},
            },
        )
    )
    assert mapped.members == {"api_key:5f70bf18a086": "acme", "header:x-tenant:A:1": "acme"}
    assert mapped.reserved == {"acme"}
    assert {name: quota.of(1000) for name, quota in mapped.quotas.items()} == {
        "acme": 250,
        "umbrella": 0,
        "third": None,
    }


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"other": {}}, "'other'"),
        ({"none": {}}, "'none'"),
        ({"": {}}, "length"),
        ({"a" * (MAX_NAME + 1): {}}, "length"),
        ({"a\n": {}}, "regex"),
        ({"a": {"quota_blocks": -1}}, "quota_blocks"),
        ({"a": {"quota_ratio": 1.5}}, "quota_ratio"),
        ({"a": {"quota_ratio": 0.5, "quota_blocks": 5}}, "one is allowed"),
        ({"a": {"values": ["user:x"]}, "b": {"values": ["user:x"]}}, "'user:x'"),
        ({str(i): {} for i in range(5000)}, "4096"),
        ("{" + " " * MAX_FILE_BYTES + "}", "bytes"),
    ],
)
def test_a_bad_map_says_why(content: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(TenantMapError, match=says):
        read_map(write(tmp_path, content))


# -- names ------------------------------------------------------------------------------------------------------


def mapped(tmp_path: Path) -> TenantSettings:
    content = {"acme": {"values": ["user:alice", "api_key:0123456789ab"]}, "umbrella": {"quota_blocks": 5}}
    return read(TENANT_MAP=str(write(tmp_path, content)))


def test_values_of_the_map_get_its_names(tmp_path: Path) -> None:
    settings = mapped(tmp_path)
    assert settings.tenant("user", "alice") == settings.tenant("api_key", "0123456789ab") == "acme"


def test_a_name_that_the_map_keeps_is_nobody_elses(tmp_path: Path) -> None:
    settings = mapped(tmp_path)
    assert settings.tenant("user", "acme") == "user-acme"
    assert settings.tenant("header:x-tenant", "acme") == "header-acme"
    # A tenant without values of its own is whoever is called so.
    assert settings.tenant("user", "umbrella") == "umbrella"


@pytest.mark.parametrize("value", ["other", "none", "key-0123456789ab", "salt-0123456789ab"])
def test_names_of_ours_are_nobodys(value: str) -> None:
    assert TenantSettings().tenant("user", value) == f"user-{value}"


def test_a_value_can_not_pose_as_one_of_another_source(tmp_path: Path) -> None:
    settings = mapped(tmp_path)
    assert settings.tenant("user", "api_key:0123456789ab") == "api_key:0123456789ab"
    assert settings.tenant("lora", "alice") == "alice"


def test_secrets_show_as_hashes_only() -> None:
    settings = TenantSettings()
    assert settings.of_request("pepper", None, {}) == f"salt-{short_hash('pepper')}"
    assert settings.of_request(None, None, {"api_key": short_hash("key")}) == f"key-{short_hash('key')}"


def test_the_first_source_that_names_one_wins() -> None:
    front = {"user": "bob", "api_key": "0" * 12}
    assert TenantSettings(sources=("lora", "user", "api_key")).of_request(None, "tuned", front) == "tuned"
    assert TenantSettings(sources=("lora", "user", "api_key")).of_request(None, None, front) == "bob"
    assert TenantSettings(sources=("cache_salt", "lora")).of_request(None, None, front) == ""


def test_long_names_stay_different_and_short_ones_as_they_are() -> None:
    assert printable("a" * MAX_NAME) == "a" * MAX_NAME
    first, second = printable("a" * 100 + "1"), printable("a" * 100 + "2")
    assert first != second
    assert len(first) == len(second) == MAX_NAME
    assert printable("né\n\x00") == "n___"


def test_the_hash_is_what_b2sum_prints() -> None:
    assert short_hash("secret1") == "6aed9dd96fba"
