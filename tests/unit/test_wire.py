"""Every frame that is well made comes through; any other gives a WireError with the right reason, never more."""

from __future__ import annotations

import math
import types
import typing

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine_hooks import wire
from engine_hooks.detail import MAX_ROWS
from engine_hooks.wire import MAX_FRAME_BYTES, WireError, decode, encode
from tests.unit.builders import make_hello, make_report
from tests.unit.details import make_allocation, make_detail, make_histogram, make_tenant, make_waiting

_encode = msgspec.msgpack.encode
_PLAIN = {
    int: st.integers(-(2**40), 2**40),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
    bytes: st.binary(max_size=40),
    bool: st.booleans(),
    type(None): st.none(),
}


def _values(hint: object) -> st.SearchStrategy[object]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint, include_extras=True)
        fields = {name: _values(inner) for name, inner in hints.items()}
        return st.fixed_dictionaries(fields).map(lambda found: hint(**found))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated and arguments[0] is int:
        return st.integers(arguments[1].ge, arguments[1].le)
    if origin is typing.Annotated and arguments[0] is float:
        return st.floats(arguments[1].ge, arguments[1].le)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is typing.Annotated:
        found = _values(arguments[0])
    elif origin in {types.UnionType, typing.Union}:
        found = st.one_of(*map(_values, arguments))
    elif origin is dict:
        found = st.dictionaries(*map(_values, arguments), max_size=2)
    elif origin is tuple:
        found = st.lists(_values(arguments[0]), max_size=2).map(tuple)
    else:
        found = _PLAIN[hint]
    return found


_TREES = st.recursive(
    st.one_of(*_PLAIN.values()), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)
_BODIES = st.dictionaries(st.sampled_from(["nonce", "mac", "payload", "sequence", "pool", "hooks", "x"]), _TREES)


@given(st.one_of(*(_values(cls) for cls in wire.KINDS.values())))
def test_every_message_round_trips(message: wire.Message) -> None:
    assert decode(encode(message)) == message


@given(_values(wire.Order))
def test_orders_round_trip(order: wire.Order) -> None:
    assert wire.decode_order(wire.encode_order(order)) == order


def _reason(data: bytes) -> str:
    with pytest.raises(WireError) as caught:
        decode(data)
    assert caught.value.reason in WireError.REASONS
    return caught.value.reason


@given(
    st.binary(max_size=300)
    | st.tuples(st.integers(0, 2), st.sampled_from([*wire.KINDS, "other"]), _BODIES | _TREES).map(_encode)
)
@example(b"")
@example(b"\xc1")
@example(_encode([2**63, "report", {}]))
@example(b"\x93\x01\xa5re\xffrt\x80")
def test_no_bytes_raise_anything_but_wire_errors(data: bytes) -> None:
    reason, message = "", None
    try:
        message = decode(data)
    except WireError as error:
        reason = error.reason
    assert reason in WireError.REASONS if message is None else type(message) in wire.KINDS.values()


@given(st.binary(max_size=200))
def test_no_payload_raises_anything_but_wire_errors(payload: bytes) -> None:
    order, reason = None, ""
    try:
        order = wire.decode_order(payload)
    except WireError as error:
        reason = error.reason
    assert reason == "malformed" if order is None else type(order) is wire.Order


@pytest.mark.parametrize("message", [make_hello(), make_report(), make_detail()], ids=["hello", "report", "detail"])
def test_unknown_fields_are_ignored(message: wire.Message) -> None:
    version, kind, body = msgspec.msgpack.decode(encode(message))
    body["field_of_the_future"] = {"a": [1, 2]}
    assert decode(_encode([version, kind, body])) == message


def test_a_longer_frame_array_is_ignored_too() -> None:
    frame = msgspec.msgpack.decode(encode(wire.Heartbeat(silent_seconds=1.0)))
    assert decode(_encode([*frame, "more"])) == wire.Heartbeat(silent_seconds=1.0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_encode([2, "heartbeat", {"silent_seconds": 1.0}]), "unknown_version"),
        (_encode([0, "heartbeat", {"silent_seconds": 1.0}]), "unknown_version"),
        (_encode([1, "gossip", {}]), "unknown_kind"),
        (_encode([1, "heartbeat", {"silent_seconds": float("nan")}]), "malformed"),
        (_encode([1, "heartbeat", {"silent_seconds": float("inf")}]), "malformed"),
        (_encode([1, "heartbeat", {}]), "malformed"),
        (_encode([1, "heartbeat", {"silent_seconds": "soon"}]), "malformed"),
        (_encode([1, "heartbeat"]), "malformed"),
        (_encode({"version": 1}), "malformed"),
        (_encode([1, "report", None]), "malformed"),
        (encode(make_report())[:-1], "malformed"),
        (encode(make_report()) + b"\0", "malformed"),
        (b"", "malformed"),
        (b"GET / HTTP/1.1\r\n\r\n", "malformed"),
        (b"\x93\x01\xa5hello" + b"\x91" * 60_000 + b"\xc0", "malformed"),
        (b"\x91" * 60_000 + b"\xc0", "malformed"),
        (b"\0" * (MAX_FRAME_BYTES + 1), "oversize"),
    ],
)
def test_bad_frames_have_their_reason(data: bytes, reason: str) -> None:
    assert _reason(data) == reason


def test_an_unknown_version_goes_before_an_unknown_kind() -> None:
    assert _reason(_encode([9, "gossip", 5])) == "unknown_version"


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    frame = encode(wire.Proof(mac=b"\0" * 60_000))
    room = MAX_FRAME_BYTES - len(frame)
    largest = wire.Proof(mac=b"\0" * (60_000 + room))
    assert len(encode(largest)) == MAX_FRAME_BYTES
    assert decode(encode(largest)) == largest
    with pytest.raises(WireError) as caught:
        encode(wire.Proof(mac=b"\0" * (60_001 + room)))
    assert caught.value.reason == "oversize"
    assert str(caught.value) == "oversize: 65537 bytes, 65536 allowed"


@pytest.mark.parametrize(
    "change",
    [
        {"name": "x" * 65},
        {"name": "x\ny"},
        {"name": "\x1b]0;x\x07"},
        {"engine_version": "x" * 65},
        {"host": "a\nb"},
        {"started_at": float("nan")},
    ],
)
def test_a_hello_that_would_make_bad_labels_is_malformed(change: dict[str, typing.Any]) -> None:
    with pytest.raises(WireError, match="malformed"):
        decode(encode(make_hello(**change)))


def test_a_report_that_would_make_endless_labels_is_malformed() -> None:
    report = make_report()
    errors = {f"hook {number}": 1 for number in range(33)}
    flood = msgspec.structs.replace(report, hooks=msgspec.structs.replace(report.hooks, errors=errors))
    with pytest.raises(WireError, match="malformed"):
        decode(encode(flood))


def test_a_full_detail_round_trips() -> None:
    assert decode(encode(make_detail())) == make_detail()


def test_a_section_that_cannot_be_told_is_not_an_empty_one() -> None:
    for leaks in (None, ()):
        assert decode(encode(make_detail(leaks=leaks))) == make_detail(leaks=leaks)
    assert make_detail(leaks=None) != make_detail(leaks=())


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "place",
    [
        lambda number: {"monotonic": number},
        lambda number: {"tenants": (make_tenant(), make_tenant(tenant="x", held=number))},
        lambda number: {"allocation": make_allocation(wait_seconds=make_histogram(sum=number))},
        lambda number: {"allocation": make_allocation(wait_seconds=make_histogram(bounds=(0.1, number)))},
        lambda number: {"waiting": make_waiting(stalled_seconds=number)},
    ],
)
def test_a_number_that_is_none_is_malformed_wherever_it_hides(
    place: typing.Callable[[float], dict[str, typing.Any]], number: float
) -> None:
    assert _reason(encode(make_detail(**place(number)))) == "malformed"


@pytest.mark.parametrize(
    "change",
    [
        {"tenants": (make_tenant(),) * (MAX_ROWS + 1)},
        {"tenants": (make_tenant(tenant="a\nb"),)},
        {"tenants": (make_tenant(ended_total={str(number): 1 for number in range(17)}),)},
        {"waiting": make_waiting(reasons={str(number): 1 for number in range(33)})},
        {"waiting": make_waiting(reasons={"x" * 65: 1})},
        {"unsupported": {"leaks": "x" * 513}},
        {"allocation": make_allocation(wait_seconds=make_histogram(bounds=tuple(map(float, range(33)))))},
    ],
)
def test_a_detail_that_would_make_endless_labels_is_malformed(change: dict[str, typing.Any]) -> None:
    assert _reason(encode(make_detail(**change))) == "malformed"
