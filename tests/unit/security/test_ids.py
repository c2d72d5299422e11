"""Names and ids of people: hashed or mapped as configured, and nothing that a client writes is more than a label."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine_hooks import wire
from engine_hooks.detail import MAX_ROWS
from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.names import short_hash
from exporters.exposition import Exposition
from tests.unit.builders import make_engine, make_state
from tests.unit.details import make_detail, make_tenant

MAIL = "alice@example.com"


def settings(tmp_path: Path, **env: str) -> TenantSettings:
    file = tmp_path / "tenants.json"
    file.write_text(json.dumps({"acme": {"values": ["user:bob"]}, "umbrella": {"quota_blocks": 1}}))
    return TenantSettings.from_environment({"KVTIDE_TENANT_MAP": str(file), **env})


@pytest.mark.parametrize("on", ["1", "yes", "true"])
def test_what_clients_call_themselves_is_hashed_where_that_is_wanted(tmp_path: Path, on: str) -> None:
    told = settings(tmp_path, KVTIDE_HASH_TENANTS=on)
    assert told.tenant("user", MAIL) == f"user-{short_hash(MAIL)}"
    assert told.tenant("header:x-tenant", MAIL) == f"header-{short_hash(MAIL)}"
    assert told.tenant("user", MAIL) != told.tenant("user", MAIL + "x")
    assert told.tenant("user", "bob") == "acme", "the map has the last word"
    assert told.tenant("user", "umbrella") == "umbrella"
    assert told.tenant("user", "acme") == f"user-{short_hash('acme')}", "nobody poses as one of the map"
    assert told.tenant("lora", "my-adapter") == "my-adapter"
    assert told.of_request(None, None, {"user": MAIL}) == f"user-{short_hash(MAIL)}"


@pytest.mark.parametrize("off", ["", "0", "false", "No"])
def test_names_stay_where_nobody_asked_for_hashes(tmp_path: Path, off: str) -> None:
    assert settings(tmp_path, KVTIDE_HASH_TENANTS=off).tenant("user", MAIL) == MAIL


@pytest.mark.parametrize(
    "name", ["a\r\nSet-Cookie: x=1", 'a"} 1\nkvtide_evil{x="', "a\\", "a\x1b[2J", "\x00", "a" * 10_000, "é\u202e"]
)
def test_a_name_is_one_short_line_of_ascii(name: str) -> None:
    shown = TenantSettings().tenant("header:x-tenant", name)
    assert shown.isascii()
    assert shown.isprintable()
    assert len(shown) <= 64


@pytest.mark.parametrize("detail", [False, True])
def test_a_name_makes_no_line_of_its_own_even_if_an_engine_sends_it_raw(detail: bool) -> None:
    name = 'a"} 1\nkvtide_evil{x="\\'
    state = make_state(make_engine(detail=make_detail(tenants=(make_tenant(tenant=name),))))
    text = Exposition(detail=detail).render(state, compressed=False).decode()
    families = list(text_string_to_metric_families(text))
    assert not [family.name for family in families if "evil" in family.name]
    assert any(sample.labels.get("tenant") == name for family in families for sample in family.samples) or detail


def test_no_frame_has_more_tenants_than_an_engine_may_have() -> None:
    """How the engine keeps 100,000 to a few is in tests/engine/security; this is for one that is not ours."""

    def frame(number: int) -> bytes:
        return wire.encode(make_detail(tenants=tuple(make_tenant(tenant=f"t{n}") for n in range(number))))

    wire.decode(frame(MAX_ROWS))
    with pytest.raises(wire.WireError):
        wire.decode(frame(MAX_ROWS + 1))
