"""The web configuration file: checked whole, one line for each fault, no secret in any of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import bcrypt
import pytest

from agent.errors import ConfigError
from agent.web.settings import load
from agent.web.web import Web
from tests.unit.security.certificates import self_signed

HASH = bcrypt.hashpw(b"geheim", bcrypt.gensalt(4)).decode()
PAIR = "cert_file: server.pem, key_file: server.key"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("web")
    self_signed(path)
    self_signed(path, "other")
    subprocess.run(
        ["openssl", "ec", "-aes128", "-passout", "pass:x", "-in", path / "server.key", "-out", path / "secret.key"],
        check=True,
        capture_output=True,
    )
    (path / "junk.pem").write_text("nothing")
    return path


def written(folder: Path, text: str) -> Path:
    path = folder / "web.yaml"
    path.write_text(text)
    return path


def test_a_whole_file_of_another_exporter_is_taken(folder: Path) -> None:
    text = f"""
tls_server_config:
  cert_file: server.pem
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: other.pem
  client_allowed_sans: [prometheus.example]
  min_version: TLS13
  cipher_suites: [TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
http_server_config:
  http2: true
  headers: {{X-Frame-Options: deny, Strict-Transport-Security: max-age=31536000}}
basic_auth_users:
  prometheus: {HASH}
"""
    settings = load(written(folder, text)).settings
    assert settings.asks_who
    assert settings.users == {"prometheus": HASH.encode()}
    assert dict(settings.headers)[b"x-frame-options"] == b"deny"
    assert settings.sans == {"prometheus.example"}
    assert settings.tls is not None
    assert (settings.tls.minimum_version.name, settings.tls.verify_mode.name) == ("TLSv1_3", "CERT_REQUIRED")


@pytest.mark.parametrize("text", ["", "{}", "tls_server_config:", "basic_auth_users: {}", "http_server_config:"])
def test_a_file_that_asks_for_nothing_is_right(folder: Path, text: str) -> None:
    settings = load(written(folder, text)).settings
    assert not settings.asks_who
    assert settings.tls is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tls: {}", "unknown key tls; allowed here: tls_server_config, http_server_config, basic_auth_users"),
        ("rate_limit: {}", "unknown key rate_limit"),
        ("tls_server_config: {cert_file: server.pem}", "key_file: missing: cert_file and key_file: both or none"),
        ("tls_server_config: {min_version: TLS13}", "cert_file: missing: without a certificate there is no TLS"),
        (f"tls_server_config: {{{PAIR}, min_version: TLS10}}", "min_version: 'TLS10': is broken: TLS12 or TLS13"),
        (f"tls_server_config: {{{PAIR}, min_version: TLS13, max_version: TLS12}}", "must not be above max_version"),
        (f"tls_server_config: {{{PAIR}, curve_preferences: [X25519]}}", "unknown key tls_server_config.curve_pref"),
        (f"tls_server_config: {{{PAIR}, cipher_suites: [RC4]}}", "cipher_suites: RC4: allowed here: TLS_ECDHE"),
        (
            f"tls_server_config: {{{PAIR}, client_auth_type: RequireAnyClientCert}}",
            "asks for a certificate that nobody",
        ),
        (f"tls_server_config: {{{PAIR}, client_auth_type: RequireAndVerifyClientCert}}", "client_ca_file: missing"),
        (
            f"tls_server_config: {{{PAIR}, client_ca_file: other.pem}}",
            "client_auth_type: NoClientCert: with a client_ca",
        ),
        (f"tls_server_config: {{{PAIR}, client_allowed_sans: [a]}}", "client_allowed_sans needs RequireAndVerify"),
        ("tls_server_config: {cert_file: gone.pem, key_file: server.key}", "gone.pem: No such file or directory"),
        ("tls_server_config: {cert_file: server.pem, key_file: other.key}", "other.key: is not the key of cert_file"),
        ("tls_server_config: {cert_file: junk.pem, key_file: server.key}", "not a PEM file that fits"),
        ("tls_server_config: {cert_file: server.pem, key_file: secret.key}", "is encrypted: nobody is there"),
        (
            f"tls_server_config: {{{PAIR}, client_auth_type: VerifyClientCertIfGiven, client_ca_file: junk.pem}}",
            "client_ca_file: FOLDER/junk.pem: no certificates in PEM",
        ),
        ("basic_auth_users: {bob: hunter2}", "basic_auth_users.bob: (not shown): must be a bcrypt hash"),
        ("basic_auth_users: [bob, hunter2]", "(not shown): must be a mapping"),
        ("basic_auth_users: bob:hunter2", "(not shown): must be a mapping"),
        ("basic_auth_users: {'b:c': hunter2}", "a name must be text that can be printed, without a colon"),
        (f"basic_auth_users: {{bob: {HASH.replace('$04$', '$31$')}}}", "cost 31: the cost of the hash must be 4 to 14"),
        ("http_server_config: {headers: {Server: x}}", "headers.Server: unknown header: allowed here: Content-Sec"),
        ('http_server_config: {headers: {X-XSS-Protection: "0\\r\\nSet-Cookie: a"}}', "must be one line of ASCII"),
        ("http_server_config: {headers: {X-Frame-Options: maybe}}", "maybe: must be deny or sameorigin"),
    ],
)
def test_each_fault_is_one_line_without_a_secret(folder: Path, text: str, says: str) -> None:
    file = written(folder, text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    line = str(caught.value)
    assert line.startswith(f"{file}: ")
    assert says.replace("FOLDER", str(folder)) in line
    assert len(line.splitlines()) == 1
    assert "hunter2" not in line


def test_a_changed_file_or_certificate_is_seen_and_a_bad_one_is_not_taken(tmp_path: Path) -> None:
    self_signed(tmp_path)
    file = written(tmp_path, f"tls_server_config: {{{PAIR}}}\nbasic_auth_users: {{a: {HASH}}}\n")
    web = Web(file)
    assert web.look() is None
    before = web.settings
    self_signed(tmp_path)
    loaded = web.look()
    assert loaded is not None
    web.take(loaded)
    assert web.settings.tls is not before.tls
    file.write_text("tls_server_config: {cert_file: server.pem}")
    with pytest.raises(ConfigError, match="key_file: missing"):
        web.look()
    assert web.settings is loaded.settings


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("", "tls_server_config"),
        (f"tls_server_config: {{{PAIR}}}\n", "basic_auth_users"),
        (f"basic_auth_users: {{a: {HASH}}}\n", "tls_server_config"),
    ],
)
def test_what_keeps_strangers_out_is_never_taken_away_by_a_change(tmp_path: Path, text: str, lost: str) -> None:
    self_signed(tmp_path)
    file = written(tmp_path, f"tls_server_config: {{{PAIR}}}\nbasic_auth_users: {{a: {HASH}}}\n")
    web = Web(file)
    file.write_text(text)  # as an editor leaves it before it writes the rest
    with pytest.raises(ConfigError, match=f"has no {lost} any more: that takes a restart"):
        web.look()
    Web(file)  # at a start the file is believed
