"""The HTTP port as strangers meet it: who is answered, and how little it helps to say nothing, slowly or in masses."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from pathlib import Path

import bcrypt
import pytest

from agent.web import connection, listener
from agent.web.listener import WebServer
from tests.unit.builders import make_state
from tests.unit.security.certificates import self_signed
from tests.unit.security.serving import port, raw, serving, until

HASH = bcrypt.hashpw(b"geheim", bcrypt.gensalt(4)).decode()
AUTH = b"Authorization: Basic " + base64.b64encode(b"prom:geheim") + b"\r\n"
HEALTHY = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n\r\n"
PAIR = "cert_file: server.pem, key_file: server.key"


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at at once; nobody is ended for being slow where that is not what is tested."""
    monkeypatch.setattr(listener, "SERVER_SECONDS", 0.02)
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 300.0)
    for name in ("REQUEST_SECONDS", "IDLE_SECONDS", "UNREAD_SECONDS"):
        monkeypatch.setattr(connection, name, 300.0)


def web_file(folder: Path, text: str) -> Path:
    file = folder / "web.yaml"
    file.write_text(text)
    return file


def users(folder: Path) -> Path:
    return web_file(folder, f"basic_auth_users: {{prom: {HASH}}}\n")


async def over_tls(server: WebServer, trusted: Path, own: tuple[Path, Path] | None = None) -> bytes:
    context = ssl.create_default_context(cafile=str(trusted))
    if own is not None:
        context.load_cert_chain(*own)
    reader, writer = await asyncio.open_connection("127.0.0.1", port(server), ssl=context, server_hostname="localhost")
    writer.write(HEALTHY % b"")
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/metrics/detail", "/api/v1/state", "/-/healthy", "/nope", "/-/reload"]
)
async def test_nothing_is_answered_to_who_is_not_known(tmp_path: Path, path: str) -> None:
    async with serving(users(tmp_path)) as (server, web):
        request = b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n"
        for header in (b"", AUTH.replace(b"Z", b"Y"), AUTH + AUTH):
            answer = await raw(server, request % (path.encode(), header))
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert b'www-authenticate: Basic realm="kvtide"' in answer
        assert web.refused["credentials"] == 3
        answer = await raw(server, request % (path.encode(), AUTH))
        assert not answer.startswith(b"HTTP/1.1 401 ")
        assert server.state().known


async def test_a_reload_is_for_who_is_known_and_for_no_web_page(tmp_path: Path) -> None:
    post = b"POST /-/reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n%s\r\n"
    async with serving() as (server, _):
        assert (await raw(server, post % b"")).startswith(b"HTTP/1.1 403 ")
        assert (await raw(server, post % AUTH)).startswith(b"HTTP/1.1 403 ")
    async with serving(users(tmp_path)) as (server, _):
        assert (await raw(server, post % b"")).startswith(b"HTTP/1.1 401 ")
        assert (await raw(server, post % (AUTH + b"Origin: http://evil\r\n"))).startswith(b"HTTP/1.1 403 ")
        assert (await raw(server, post % AUTH)).startswith(b"HTTP/1.1 200 ")


async def test_headers_of_the_file_are_added_and_ours_stay(tmp_path: Path) -> None:
    text = "http_server_config: {headers: {X-Frame-Options: deny, Content-Security-Policy: default-src *}}"
    async with serving(web_file(tmp_path, text)) as (server, _):
        page = await raw(server, HEALTHY.replace(b"/-/healthy", b"/") % b"")
        assert b"x-frame-options: deny" in page
        assert b"default-src 'none'" in page
        assert b"default-src *" not in page
        assert b"default-src *" in await raw(server, HEALTHY % b"")


async def test_users_that_are_exchanged_count_from_the_next_request_on(tmp_path: Path) -> None:
    file = users(tmp_path)
    async with serving(file) as (server, web):
        reader, writer = await asyncio.open_connection("127.0.0.1", port(server))
        kept = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % AUTH
        writer.write(kept)
        assert b"healthy\n" in await reader.readuntil(b"healthy\n")
        other = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()
        file.write_text(f"basic_auth_users: {{prom: {other}}}\n")
        await until(lambda: web.settings.users == {"prom": other.encode()}, server)
        writer.write(kept)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_a_file_that_is_emptied_opens_nothing_and_is_told(tmp_path: Path) -> None:
    file = users(tmp_path)
    before = file.read_text()
    async with serving(file) as (server, web):
        file.write_text("")
        await until(lambda: web.problem, server)
        assert "has no basic_auth_users any more" in server.state().problem
        assert (await raw(server, HEALTHY % b"")).startswith(b"HTTP/1.1 401 ")
        file.write_text(before)
        await until(lambda: not web.problem, server)
        assert (await raw(server, HEALTHY % AUTH)).startswith(b"HTTP/1.1 200 ")


async def test_a_new_certificate_is_used_from_the_next_connection_on(tmp_path: Path) -> None:
    old, _ = self_signed(tmp_path)
    old_copy = tmp_path / "old.pem"
    old_copy.write_bytes(old.read_bytes())
    async with serving(web_file(tmp_path, f"tls_server_config: {{{PAIR}}}")) as (server, web):
        assert server.url.startswith("https://")
        assert b"healthy\n" in await over_tls(server, old_copy)
        context = ssl.create_default_context(cafile=str(old_copy))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port(server), ssl=context, server_hostname="localhost"
        )
        before = web.settings.tls
        new, _ = self_signed(tmp_path)
        await until(lambda: web.settings.tls is not before, server)
        assert await reader.read() == b"", "a connection by the old certificate ends"
        writer.close()
        assert b"healthy\n" in await over_tls(server, new)
        with pytest.raises(ssl.SSLCertVerificationError):
            await over_tls(server, old_copy)


async def test_clients_show_a_certificate_of_the_right_name(tmp_path: Path) -> None:
    server_cert, _ = self_signed(tmp_path)
    right = self_signed(tmp_path, "right", "subjectAltName=DNS:prometheus.example")
    wrong = self_signed(tmp_path, "wrong", "subjectAltName=DNS:else.example")
    (tmp_path / "ca.pem").write_bytes(right[0].read_bytes() + wrong[0].read_bytes())
    text = (
        f"tls_server_config: {{{PAIR}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem, "
        "client_allowed_sans: [prometheus.example]}"
    )
    async with serving(web_file(tmp_path, text)) as (server, web):
        assert server.state().known
        assert b"healthy\n" in await over_tls(server, server_cert, right)
        for own in (wrong, None):
            try:
                answer = await over_tls(server, server_cert, own)
            except (ssl.SSLError, ConnectionError):
                answer = b""
            assert answer == b""
        await until(lambda: web.refused["certificate"] == 1 and web.refused["handshake"] == 1, server)


async def test_no_word_in_clear_where_tls_is_spoken(tmp_path: Path) -> None:
    self_signed(tmp_path)
    async with serving(web_file(tmp_path, f"tls_server_config: {{{PAIR}}}")) as (server, web):
        try:
            answer = await raw(server, HEALTHY % b"")
        except ConnectionError:
            answer = b""
        assert not answer.startswith(b"HTTP/")
        await until(lambda: web.refused["handshake"] == 1, server)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_thousand_that_say_nothing_keep_nobody_out(tmp_path: Path, tls: bool) -> None:
    certificate, _ = self_signed(tmp_path)
    file = web_file(tmp_path, f"tls_server_config: {{{PAIR}}}") if tls else None
    async with serving(file) as (server, web):
        silent = []
        for _ in range(1000):
            sock = socket.socket()
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port(server)))
            silent.append(sock)
        await until(lambda: web.refused["crowded"] >= 1000 - listener.MOST_CONNECTIONS, server)
        assert len(server._clients) <= listener.MOST_CONNECTIONS
        answer = await over_tls(server, certificate) if tls else await raw(server, HEALTHY % b"")
        assert b"healthy\n" in answer
        for sock in silent:
            sock.close()


async def drip(server: WebServer, first: bytes, rest: bytes) -> bytes:
    """Send ``first``, then ``rest`` again and again until the other side ends it; return what it said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port(server))
    writer.write(first)
    try:
        while not reader.at_eof() and reader.exception() is None:
            writer.write(rest)
            await writer.drain()
            server.look()
            await asyncio.sleep(0.005)
        return await reader.read()
    except ConnectionError:
        return b"ended"
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("first", "rest"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nX: ", b"a"),
        (b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n", b"a"),
    ],
    ids=["silence", "head", "body"],
)
async def test_who_drips_is_ended(monkeypatch: pytest.MonkeyPatch, first: bytes, rest: bytes) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.2)
    async with serving() as (server, web):
        await drip(server, first, rest)
        assert web.refused["slow"] == 1


async def test_who_waits_between_two_requests_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.0)
    async with serving() as (server, web):
        reader, writer = await asyncio.open_connection("127.0.0.1", port(server))
        for _ in range(3):
            writer.write(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"healthy\n")
            for _ in range(5):
                server.look()
                await asyncio.sleep(0)
        assert web.refused["slow"] == 0
        writer.close()


async def test_who_does_not_read_is_ended_and_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    large = make_state(not_ready_reason="x" * (8 << 20))
    ask = b"GET /api/v1/state HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with serving(state=large) as (server, web):
        monkeypatch.setattr(listener, "UNREAD_BYTES", 16 << 20)
        pairs = [await asyncio.open_connection("127.0.0.1", port(server), limit=1024) for _ in range(6)]
        for _, writer in pairs:
            writer.write(ask)
        await until(lambda: web.refused["unread"] >= 3, server)
        server.look()
        assert sum(each.protocol.unread for each in server._clients if each.protocol) <= 16 << 20
        monkeypatch.setattr(connection, "UNREAD_SECONDS", 0.1)
        await until(lambda: web.refused["unread"] == 6, server)
        assert b"healthy\n" in await raw(server, HEALTHY % b"")
        for _, writer in pairs:
            writer.close()


async def test_too_large_a_head_is_refused() -> None:
    async with serving() as (server, _):
        answer = await raw(server, b"GET / HTTP/1.1\r\nX: " + b"a" * (connection.HEAD_BYTES + 1))
        assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "line", [b"GET /-/healthy HTTP/1.1\r\nX: %s", b"GET /-/healthy?%s HTTP/1.1", b"GET /%s HTTP/1.1"]
)
async def test_too_large_a_head_that_comes_in_one_piece_is_refused_as_well(line: bytes) -> None:
    async with serving() as (server, _):
        for size, refused in ((connection.HEAD_BYTES // 2, False), (connection.HEAD_BYTES + 1, True)):
            answer = await raw(server, line % (b"a" * size) + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 431 ") == refused


async def test_what_follows_a_head_and_is_no_http_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    head = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving() as (server, _):
        answer = await raw(server, head + b"ZZZ\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"healthy\n" in await raw(server, HEALTHY % b"")
    assert not caplog.records


async def test_no_http_amid_an_answer_ends_the_connection_and_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    large = make_state(not_ready_reason="x" * (8 << 20))
    head = b"GET /api/v1/state HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving(state=large) as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port(server), limit=1024)
        writer.write(head)
        assert (await reader.read(1024)).startswith(b"HTTP/1.1 200 ")
        writer.write(b"ZZZ\r\n")
        await reader.read()
        writer.close()
        assert b"healthy\n" in await raw(server, HEALTHY % b"")
    assert not caplog.records


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /../../etc/passwd HTTP/1.1",
        b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1",
        b"GET //etc/passwd HTTP/1.1",
        b"GET /metrics/../../etc/passwd HTTP/1.1",
        b"GET /api/v1/record/../state%00 HTTP/1.1",
        b"GET /-/engine/..%2f..%2fetc HTTP/1.1",
        b"GET /api/v1/orders HTTP/1.1",
        b"POST /api/v1/orders HTTP/1.1",
        b"POST /api/v1/off HTTP/1.1",
        b"GET /api/v1/marks HTTP/1.1",
        b"TRACE / HTTP/1.1",
        b"CONNECT evil:80 HTTP/1.1",
        b"GET http://evil/latest/meta-data HTTP/1.1",
        b"POST /metrics HTTP/1.1",
    ],
)
async def test_path_tricks_and_orders_come_to_nothing(request_: bytes) -> None:
    async with serving() as (server, _):
        answer = await raw(server, request_ + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert answer.split()[1] in (b"404", b"405", b"400")
        assert b"root:" not in answer


async def test_an_upgrade_is_none() -> None:
    async with serving() as (server, _):
        ask = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port(server))
        writer.write(ask)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost:9477", b"200"),
        (b"127.0.0.1:9477", b"200"),
        (b"[::1]:9477", b"200"),
        (b"app.localhost", b"200"),
        (b"evil.example", b"421"),
        (b"evil.example:9477", b"421"),
        (b"127.0.0.1.evil.example", b"421"),
        (b"localhost.evil.example", b"421"),
    ],
)
async def test_a_page_of_another_name_that_points_here_reads_nothing(
    tmp_path: Path, host: bytes, status: bytes
) -> None:
    ask = HEALTHY.replace(b"localhost", host)
    async with serving() as (server, web):
        assert (await raw(server, ask % b"")).split()[1] == status
        assert web.refused["host"] == (status != b"200")
    async with serving(users(tmp_path)) as (server, _):
        assert (await raw(server, ask % AUTH)).split()[1] == b"200", "who is known may use any name"


async def test_an_answer_that_fails_is_logged_and_not_each_time(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(state=object()) as (server, _):  # type: ignore[arg-type]
        for _ in range(3):
            answer = await raw(server, HEALTHY.replace(b"/-/healthy", b"/") % b"")
            assert answer.split()[1] == b"500"
    assert [record.getMessage() for record in caplog.records] == ["http: / could not be answered"]


async def test_requests_that_are_sent_before_their_turn_are_not_served() -> None:
    async with serving() as (server, _):
        ask = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert (await raw(server, ask * 50)).count(b"HTTP/1.1 200 ") == 1


async def test_who_has_just_been_served_outlives_who_has_said_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MOST_CONNECTIONS", 3)
    ask = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with serving() as (server, web):
        reader, writer = await asyncio.open_connection("127.0.0.1", port(server))
        silent = [await asyncio.open_connection("127.0.0.1", port(server)) for _ in range(2)]
        writer.write(ask)
        await reader.readuntil(b"healthy\n")
        late = [await asyncio.open_connection("127.0.0.1", port(server)) for _ in range(2)]
        await until(lambda: web.refused["crowded"] == 2, server)
        writer.write(ask)
        assert b"healthy\n" in await reader.readuntil(b"healthy\n")
        assert [await pair[0].read() for pair in silent] == [b"", b""]
        for _, other in (*silent, *late, (reader, writer)):
            other.close()


@pytest.mark.parametrize("header", [b"X-Forwarded-For: 127.0.0.1\r\n", b"Forwarded: for=127.0.0.1\r\n"])
async def test_a_recording_is_not_for_whom_a_proxy_here_asks(tmp_path: Path, header: bytes) -> None:
    ask = HEALTHY.replace(b"/-/healthy", b"/api/v1/record")
    allowed = b"503"  # nothing is recorded here
    async with serving() as (server, _):
        assert (await raw(server, ask % b"")).split()[1] == allowed
        assert (await raw(server, ask % header)).split()[1] == b"403"
    async with serving(users(tmp_path)) as (server, _):
        assert (await raw(server, ask % (AUTH + header))).split()[1] == allowed
