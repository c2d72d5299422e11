"""``kvtide web``: a hash that the agent takes, and a file that is checked as it would be loaded."""

from __future__ import annotations

import io
from pathlib import Path

import bcrypt
import pytest

from agent.cli.app import run
from tests.unit.security.certificates import self_signed


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_hash_is_of_the_password_and_of_the_cost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "geheim wort\nrest\n")
    assert run(["web", "hash", "--cost", "8"]) == 0
    made = capsys.readouterr().out.strip()
    assert made.startswith("$2b$08$")
    assert bcrypt.checkpw(b"geheim wort", made.encode())


@pytest.mark.parametrize("password", ["", "x" * 73, "ü" * 37])
def test_what_bcrypt_would_cut_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], password: str
) -> None:
    typed(monkeypatch, f"{password}\n")
    assert run(["web", "hash"]) == 2
    assert "a password has 1 to 72 bytes" in capsys.readouterr().err


def test_a_file_is_checked_with_its_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "web.yaml"
    hashed = bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode()
    file.write_text(
        f"tls_server_config: {{cert_file: server.pem, key_file: server.key}}\nbasic_auth_users: {{a: {hashed}}}\n"
    )
    assert run(["web", "check", str(file)]) == 2
    assert "server.pem: No such file or directory" in capsys.readouterr().err
    self_signed(tmp_path)
    assert run(["web", "check", str(file)]) == 0
    assert "right; TLS, client_auth_type NoClientCert; 1 user" in capsys.readouterr().out
