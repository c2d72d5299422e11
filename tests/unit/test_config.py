"""The configuration: checked whole, and every mistake is one line that names the key and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import config as config_module
from agent.addresses import parse_listen
from agent.config import AgentConfig, load
from agent.errors import ConfigError, KvtideError

GIVEN = "command line or environment"


@pytest.fixture(autouse=True)
def _no_default_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_module, "DEFAULT_FILE", tmp_path / "default.yaml")


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "agent.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(file: Path | None, **overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(file, {key.replace("__", "."): value for key, value in overrides.items()})
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert caught.value.exit_code == 2
    return text


def test_exit_codes() -> None:
    assert (KvtideError.exit_code, ConfigError.exit_code) == (1, 2)


def test_defaults() -> None:
    config = load(None, {})
    assert config == AgentConfig()
    assert config.link.socket == Path("/run/kvtide/agent.sock")
    assert config.link.key_path == Path("/run/kvtide/agent.key")
    assert (config.link.mode, config.link.group) == (0o660, None)
    assert (config.link.allow_uids, config.link.allow_gids) == ((), ())
    assert config.http.address == ("127.0.0.1", 9477)
    assert config.gone_after_periods == 3.0


def test_a_file_and_options_that_win(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "link:\n  socket: /a/s\n  mode: 0600\n  allow_uids: [5, 6]\nhttp: {listen: '0.0.0.0:80'}\n"
        "gone_after_periods: 4\n",
    )
    config = load(file, {"link.socket": "/b/s"})
    assert config.link.socket == Path("/b/s")
    assert config.link.key_path == Path("/b/agent.key")
    assert (config.link.mode, config.link.allow_uids) == (0o600, (5, 6))
    assert config.http.address == ("0.0.0.0", 80)
    assert config.gone_after_periods == 4.0
    assert load(None, {"link.key_file": "/k", "http.listen": "[::1]:0"}).link.key_path == Path("/k")


def test_the_default_file_is_read_if_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "default.yaml").write_text("gone_after_periods: 7")
    assert load(None, {}).gone_after_periods == 7.0
    assert load(written(tmp_path, ""), {}).gone_after_periods == 3.0


KEYS = "link, http, sources, recorder, balancer, supervisor, policy, gone_after_periods"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}"])
def test_an_empty_file_is_fine(tmp_path: Path, text: str) -> None:
    assert load(written(tmp_path, text), {}) == AgentConfig()


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (
            "lnik: {}",
            f"unknown key lnik; allowed here: {KEYS}",
        ),
        (
            "link: {sokcet: /x}",
            "unknown key link.sokcet; allowed here: socket, key_file, mode, group, control_group, allow_uids",
        ),
        ("http: {port: 1}", "unknown key http.port; allowed here: listen"),
        (
            "sources: {scrape: {engines: [{url: 'http://a'}, {url: 'http://b', nmae: b}]}}",
            "unknown key sources.scrape.engines.1.nmae; allowed here: url, name, bearer_token_file, tls_ca_file",
        ),
        (
            "a: 1\nb: 2",
            f"unknown key a; allowed here: {KEYS}; FILE: unknown key b; ",
        ),
        ('"a\\nb": 1', "unknown key a b; allowed here: link, "),
        ("gone_after_periods: 0", "gone_after_periods: 0: Input should be greater than or equal to 1"),
        ("gone_after_periods: soon", "gone_after_periods: 'soon': Input should be a valid number"),
        ("link: {mode: 01000}", "link.mode: 512: is 01000 in octal; 0 to 0777 are allowed, such as 0660"),
        ("link: {mode: 0999}", "link.mode: '0999': must be octal digits, such as 0660"),
        ("link: {mode: 660}", "link.mode: 660: is 01224 in octal; 0 to 0777 are allowed, such as 0660"),
        ("link: {socket: rel/s}", "link.socket: 'rel/s': must be an absolute path"),
        ('link: {socket: "/a\\0b"}', "link.socket: '/a\\x00b': must not contain a zero byte"),
        ("link: {allow_uids: [root]}", "link.allow_uids.0: 'root': Input should be a valid integer"),
        ("link: {allow_uids: 5}", 'link.allow_uids: 5: must be a list (lines that begin with "-")'),
        ("link: 5", "link: 5: must be a mapping with socket, key_file, mode, group, control_group, allow_uids"),
        ("http:", "http: None: must be a mapping with listen"),
        (
            "sources: {scrape: {engines: {url: 'http://a'}}}",
            "sources.scrape.engines: {'url': 'http://a'}: must be a list (lines that begin with \"-\")",
        ),
        (
            "sources: {scrape: {engines: ['http://a']}}",
            "sources.scrape.engines.0: 'http://a': must be a mapping with url, name, bearer_token_file, tls_ca_file",
        ),
        ("sources: {scrape: {engines: [{name: x}]}}", "sources.scrape.engines.0: url is missing"),
        ("- a", "must be a mapping of settings, not list"),
        ("[]", "must be a mapping of settings, not list"),
        ("false", "must be a mapping of settings, not bool"),
        ("just words", "must be a mapping of settings, not str"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, rest: str) -> None:
    file = written(tmp_path, text)
    assert refusal(file).startswith(f"{file}: {rest.replace('FILE', str(file))}")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("link: {socket: [", " line 1:"),
        ("a: b\n c: d", " line 2:"),
        ("a: \x01", ""),
        (b"\xff\xfe\x00", ""),
        ("a: 2024-99-99", ""),
        ("a: !!int x", ""),
        ("a: !!python/object:os.system x", " line 1:"),
        ("[" * 1500, ""),
    ],
)
def test_what_is_not_yaml_is_said_so(tmp_path: Path, text: str | bytes, place: str) -> None:
    file = written(tmp_path, text)
    assert refusal(file).startswith(f"{file}:{place} not valid YAML: ")


@pytest.mark.parametrize("number", ["1:30", "-1:00", "1:30.5", "1:" * 500 + "1"])
def test_nothing_is_counted_in_sixties(tmp_path: Path, number: str) -> None:
    """YAML 1.1 reads 1:30 as 90: seconds, minutes, or whatever the key's unit is."""
    said = refusal(written(tmp_path, f"recorder:\n  full_minutes: {number}\n"))
    assert "recorder" not in said
    assert ": line 2: not valid YAML: " in said
    assert said.endswith(" would be counted in sixties: write a plain number, or put it in quotes")
    assert len(said) < 500
    load(written(tmp_path, 'policy: "1:30"\n'), {})


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.yaml") == f"{tmp_path / 'no.yaml'}: No such file or directory"
    assert refusal(tmp_path) == f"{tmp_path}: Is a directory"


def test_an_option_for_a_section_that_is_no_section(tmp_path: Path) -> None:
    file = written(tmp_path, "link: [1]")
    assert refusal(file, link__socket="/s") == f"{file}: link: must be a mapping of settings, not list"


def test_a_socket_path_of_107_bytes_is_the_longest() -> None:
    longest = "/" + "a" * 106
    assert load(None, {"link.socket": longest}).link.socket == Path(longest)
    expected = f"{GIVEN}: link.socket: {longest + 'a'!r}: the path has 108 bytes, 107 are allowed; choose a shorter one"
    assert refusal(None, link__socket=longest + "a") == expected
    assert "has 109 bytes" in refusal(None, link__socket="/" + "ä" * 54)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
        ("localhost:80", ("localhost", 80)),
        ("[::1]:9", ("::1", 9)),
    ],
)
def test_listen(text: str, address: tuple[str, int]) -> None:
    assert parse_listen(text) == address


@pytest.mark.parametrize("text", ["127.0.0.1:70000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:http", ""])
def test_listen_needs_a_port(text: str) -> None:
    start = f"{GIVEN}: http.listen: {text!r}: must be HOST:PORT with a port of 0 to 65535, such as 127.0.0.1:9477"
    assert refusal(None, http__listen=text).startswith(start)


@pytest.mark.parametrize("host", ["node.example", "256.0.0.1", "", "[::g]"])
def test_listen_needs_an_address(host: str) -> None:
    assert "does not appear to be an IPv4 or IPv6 address" in refusal(None, http__listen=f"{host}:80")


@pytest.mark.parametrize("text", ["0640", '"0640"', "0o640", "416"])
def test_permissions_are_octal_as_text_and_by_yaml(tmp_path: Path, text: str) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(f"link: {{mode: {text}}}")
    assert load(file, {}).link.mode == 0o640
