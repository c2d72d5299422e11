"""What a web configuration file comes to: certificates read, everything checked, before any of it is used."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from agent.errors import ConfigError
from agent.settings_file import checked, read
from agent.web.config import CIPHERS, TlsConfig, WebConfig

Stamp = tuple[int, int, int] | None  # None: not there
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class WebSettings:
    """``users``: names to bcrypt hashes. ``sans``: names of which a client's certificate must have one."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)
    headers: tuple[tuple[bytes, bytes], ...] = ()
    sans: frozenset[str] = frozenset()

    @property
    def asks_who(self) -> bool:
        """Whether everybody who is answered is known."""
        return bool(self.users) or (self.tls is not None and self.tls.verify_mode == ssl.CERT_REQUIRED)


@dataclass(frozen=True, slots=True)
class Loaded:
    """``files``: the file and those that it names, as they were before they were read."""

    settings: WebSettings
    files: Mapping[Path, Stamp]

    def changed(self) -> bool:
        """Return whether any of the files is another than it was."""
        return any(stamp(path) != before for path, before in self.files.items())


def stamp(path: Path) -> Stamp:
    """Return what changes with a file; a link's target counts, as Kubernetes exchanges links."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def load(file: Path) -> Loaded:
    """Return what ``file`` says; raises :class:`ConfigError` with one line that shows no secret."""
    files = {file: stamp(file)}
    config = checked(WebConfig, read(file), str(file))
    tls = config.tls_server_config
    for path in (tls.cert_file, tls.key_file, tls.client_ca_file):
        if path is not None:
            files[file.parent / path] = stamp(file.parent / path)
    settings = WebSettings(
        tls=_context(file, tls),
        users={name: text.encode() for name, text in config.basic_auth_users.items()},
        headers=tuple((k.lower().encode(), v.encode()) for k, v in config.http_server_config.headers.items()),
        sans=frozenset(tls.client_allowed_sans),
    )
    return Loaded(settings, files)


def _context(file: Path, tls: TlsConfig) -> ssl.SSLContext | None:
    if tls.cert_file is None or tls.key_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = _VERSIONS[tls.min_version], _VERSIONS[tls.max_version]
    context.set_alpn_protocols(["http/1.1"])
    if tls.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.options |= ssl.OP_NO_RENEGOTIATION
    older = [CIPHERS[name] for name in tls.cipher_suites if name in CIPHERS]
    if older:  # those of TLS 1.3 can't be chosen, neither here nor in Go
        context.set_ciphers(":".join(older))
    certificate, key = file.parent / tls.cert_file, file.parent / tls.key_file
    for name, path in (("cert_file", certificate), ("key_file", key)):
        _readable(file, name, path)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        why = {"KEY_VALUES_MISMATCH": "is not the key of cert_file"}.get(error.reason or "", "not a PEM file that fits")
        raise ConfigError(f"{file}: tls_server_config.key_file: {key}: {why} (certificate: {certificate})") from None
    except ValueError:
        raise ConfigError(
            f"{file}: tls_server_config.key_file: {key}: is encrypted: nobody is there to tell the password"
        ) from None
    if tls.client_ca_file is not None:
        ca = file.parent / tls.client_ca_file
        _readable(file, "client_ca_file", ca)
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError:
            raise ConfigError(f"{file}: tls_server_config.client_ca_file: {ca}: no certificates in PEM") from None
    context.verify_mode = CLIENT_AUTH[tls.client_auth_type]
    return context


def _readable(file: Path, name: str, path: Path) -> None:
    try:
        with path.open("rb") as opened:
            opened.read(1)
    except OSError as error:
        raise ConfigError(f"{file}: tls_server_config.{name}: {path}: {error.strerror}") from None


def _no_password() -> NoReturn:
    raise ValueError("encrypted")
