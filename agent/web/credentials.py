"""Names and passwords against bcrypt hashes, without a scrape ever waiting for one that it has passed before."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

import bcrypt

MOST_BYTES = 1024  # of a header
BCRYPT_BYTES = 72  # what bcrypt looks at; htpasswd cuts what is longer
MOST_PASSED = 128
MOST_WAITING = 8
MOST_ADDRESSES = 256
FAILURES, FAILURE_SECONDS = 8, 60.0  # an address that fails more often waits, before any hash is computed


class BusyError(Exception):
    """Too many wrong passwords are being tried: this one is not looked at."""


class Credentials:
    """``users``: names to hashes. ``threads``: one thread, so that one hash at a time is computed.

    Who has passed is remembered by a keyed digest of name, password and hash, never by the password. A name that is
    not there takes as long as one that is: a hash is computed for it as well, of the highest cost that any has.
    """

    def __init__(self, users: Mapping[str, bytes], threads: Executor, clock: Callable[[], float]) -> None:
        self._users, self._threads, self._clock = users, threads, clock
        self._key = secrets.token_bytes(32)
        self._passed: OrderedDict[bytes, str] = OrderedDict()
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()
        self._waiting = 0
        cost = max((int(each[4:6]) for each in users.values()), default=0)
        self._nobody = b"$2b$%02d$" % cost + b"." * 21 + b"u" + b"." * 31  # nobody's: no password has it

    async def check(self, header: bytes | None, address: str) -> str | None:
        """Return who it is, None for no or wrong credentials. Raises :class:`BusyError`."""
        given = _parsed(header)
        if given is None or not self._users:
            return None
        name, password = given
        stored = self._users.get(name, self._nobody)
        mark = self._mark(name, password, stored)
        if mark in self._passed:
            self._passed.move_to_end(mark)
            return name
        whence = _network(address)
        if self._waiting >= MOST_WAITING or self._failures(whence) >= FAILURES:
            raise BusyError
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            right = await loop.run_in_executor(self._threads, _matches, password, stored)
        finally:
            self._waiting -= 1
        if not right or name not in self._users:
            self._failed_once(whence)
            return None
        self._passed[mark] = name
        while len(self._passed) > MOST_PASSED:
            self._passed.popitem(last=False)
        return name

    def _mark(self, name: str, password: bytes, stored: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._key)
        for part in (name.encode(), password, stored):
            digest.update(len(part).to_bytes(4, "big") + part)
        return digest.digest()

    def _failures(self, whence: str) -> int:
        failed = self._failed.get(whence)
        while failed and self._clock() - failed[0] > FAILURE_SECONDS:
            failed.popleft()
        return len(failed) if failed else 0

    def _failed_once(self, whence: str) -> None:
        self._failed.setdefault(whence, deque(maxlen=FAILURES)).append(self._clock())
        self._failed.move_to_end(whence)
        while len(self._failed) > MOST_ADDRESSES:
            self._failed.popitem(last=False)


def _network(address: str) -> str:
    """Return whose an address is: of IPv6, one host has at least a /64."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = getattr(parsed, "ipv4_mapped", None)  # an IPv4 peer of a socket that listens on both
    parsed = parsed if mapped is None else mapped
    return str(parsed) if parsed.version == 4 else str(ipaddress.ip_network((parsed, 64), strict=False))


def _parsed(header: bytes | None) -> tuple[str, bytes] | None:
    if header is None or len(header) > MOST_BYTES:
        return None
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _matches(password: bytes, stored: bytes) -> bool:
    try:
        return bcrypt.checkpw(password[:BCRYPT_BYTES], stored)
    except ValueError:  # a password that no hash can be of
        return False
