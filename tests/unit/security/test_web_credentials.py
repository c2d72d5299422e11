"""Names and passwords: what passes, what it costs, and that nobody learns which names there are."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import bcrypt
import pytest

from agent.web import credentials as module
from agent.web.credentials import FAILURES, MOST_PASSED, MOST_WAITING, BusyError, Credentials

USERS = {"prom": bcrypt.hashpw(b"geheim", bcrypt.gensalt(4)), "zoë": bcrypt.hashpw("ü:ß".encode(), bcrypt.gensalt(5))}


def basic(name: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{name}:{password}".encode())


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Each hash that a password was compared with."""
    seen: list[bytes] = []
    real = bcrypt.checkpw

    def checkpw(password: bytes, stored: bytes) -> bool:
        seen.append(stored)
        return real(password, stored)

    monkeypatch.setattr(module.bcrypt, "checkpw", checkpw)
    return seen


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def credentials(threads: ThreadPoolExecutor) -> Credentials:
    return Credentials(USERS, threads, lambda: 0.0)


async def test_right_ones_pass_and_are_hashed_once(credentials: Credentials, hashed: list[bytes]) -> None:
    for _ in range(50):
        assert await credentials.check(basic("prom", "geheim"), "1.1.1.1") == "prom"
    assert await credentials.check(basic("zoë", "ü:ß"), "1.1.1.1") == "zoë"
    assert hashed == [USERS["prom"], USERS["zoë"]]


async def test_wrong_ones_fail_and_unknown_names_are_hashed_as_well(
    credentials: Credentials, hashed: list[bytes]
) -> None:
    assert await credentials.check(basic("prom", "falsch"), "1.1.1.1") is None
    assert await credentials.check(basic("nobody", "geheim"), "1.1.1.1") is None
    costs = [each[4:6] for each in hashed]
    assert costs == [b"04", b"05"], "a name that is not there costs what the dearest one costs"
    assert await credentials.check(basic("nobody", "geheim"), "1.1.1.1") is None
    assert len(hashed) == 3, "a failure is not remembered as anything"


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"Basic",
        b"Basic !!!",
        b"Basic " + base64.b64encode(b"no colon"),
        b"Basic " + base64.b64encode(b"\xff:x"),
        b"Bearer abc",
        b"Basic " + base64.b64encode(b"prom:" + b"x" * 2000),
    ],
)
async def test_what_is_no_header_costs_no_hash(credentials: Credentials, hashed: list[bytes], header: bytes) -> None:
    assert await credentials.check(header, "1.1.1.1") is None
    assert hashed == []


@pytest.mark.parametrize("password", ["", "geheim\0", "geheim" + "x" * 70, "\0" * 72])
async def test_odd_passwords_are_wrong_ones(credentials: Credentials, password: str) -> None:
    assert await credentials.check(basic("prom", password), "1.1.1.1") is None


async def test_who_guesses_waits_and_others_do_not(threads: ThreadPoolExecutor, hashed: list[bytes]) -> None:
    now = [0.0]
    credentials = Credentials(USERS, threads, lambda: now[0])
    assert await credentials.check(basic("prom", "geheim"), "6.6.6.6") == "prom"
    for number in range(FAILURES):
        assert await credentials.check(basic("prom", str(number)), "6.6.6.6") is None
    count = len(hashed)
    with pytest.raises(BusyError):
        await credentials.check(basic("prom", "another"), "6.6.6.6")
    assert len(hashed) == count
    assert await credentials.check(basic("prom", "geheim"), "6.6.6.6") == "prom", "who has passed before still does"
    assert await credentials.check(basic("zoë", "ü:ß"), "1.1.1.1") == "zoë"
    now[0] = 61.0
    assert await credentials.check(basic("prom", "another"), "6.6.6.6") is None


async def test_an_ipv6_network_is_one_guesser(threads: ThreadPoolExecutor) -> None:
    credentials = Credentials(USERS, threads, lambda: 0.0)
    for number in range(FAILURES):
        assert await credentials.check(basic("prom", "x"), f"2001:db8::{number}") is None
    with pytest.raises(BusyError):
        await credentials.check(basic("prom", "x"), "2001:db8::ffff")
    assert await credentials.check(basic("prom", "x"), "2001:db8:1::1") is None


async def test_ipv4_hosts_are_not_one_network_where_ipv6_is_listened_on_too(threads: ThreadPoolExecutor) -> None:
    credentials = Credentials(USERS, threads, lambda: 0.0)
    for number in range(FAILURES):
        assert await credentials.check(basic("prom", str(number)), "::ffff:6.6.6.6") is None
    for address in ("::ffff:6.6.6.6", "6.6.6.6"):
        with pytest.raises(BusyError):
            await credentials.check(basic("prom", "x"), address)
    assert await credentials.check(basic("prom", "geheim"), "::ffff:1.1.1.1") == "prom"


async def test_no_more_than_a_few_hashes_are_waited_for(credentials: Credentials) -> None:
    asked = [credentials.check(basic("prom", str(n)), f"10.0.0.{n}") for n in range(4 * MOST_WAITING)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert answers.count(None) == MOST_WAITING
    assert sum(isinstance(each, BusyError) for each in answers) == 3 * MOST_WAITING


async def test_memory_is_bounded(threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_matches", lambda _password, _stored: True)
    credentials = Credentials(USERS, threads, lambda: 0.0)
    for number in range(2 * MOST_PASSED):
        await credentials.check(basic("prom", str(number)), "1.1.1.1")
    assert len(credentials._passed) == MOST_PASSED
    monkeypatch.setattr(module, "_matches", lambda _password, _stored: False)
    for number in range(2 * module.MOST_ADDRESSES):
        await credentials.check(basic("prom", "x"), f"10.0.{number // 256}.{number % 256}")
    assert len(credentials._failed) == module.MOST_ADDRESSES
    assert not any(b"geheim" in mark for mark in credentials._passed)
