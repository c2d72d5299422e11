"""Driver calls: the program, the libraries, the counts. What bpftrace itself does is in tests/e2e."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.config import load
from agent.sources.base import SourceError
from agent.sources.config import DriverCallsConfig
from agent.sources.driver_calls.counts import Count, Ledger, counts_of, quantile
from agent.sources.driver_calls.libraries import Mapped, mapped_in
from agent.sources.driver_calls.program import BOUNDS, CALLS, Probe, calls_in, program
from agent.sources.driver_calls.source import NOBODY, DriverCallsSource
from agent.sources.driver_calls.state import CallRow
from agent.sources.host.inputs import Watched
from tests.unit.support import Clock, eventually

CREATE = CALLS.index("cuMemCreate")
_MAPS = """\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/python3.11
7f01-7f02 r--p 00000000 08:02 41 /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
7f02-7f03 r-xp 00001000 08:02 41 /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
7f03-7f04 r-xp 00001000 00:2f 42 /venv/nvidia/cuda_runtime/lib/libcudart.so.12
7f04-7f05 r-xp 00001000 00:2f 43 /venv/torch/lib/libcudart-d0da41ae.so.11.0
7f05-7f06 r-xp 00001000 00:2f 44 /venv/libcuda_helpers.so
7f06-7f07 r-xp 00001000 00:2f 45 /usr/lib/libcuda.so.1 (deleted)
7f07-7f08 r-xp 00001000 00:2f 46 /tmp/x:cuMemAlloc { system("x") }/libcuda.so.1
7f08-7f09 rw-p 00000000 00:00 0 [heap]
garbage /libcuda.so
"""


def maps(**values: Mapping[str, int]) -> dict[str, Mapping[str, int]]:
    return {f"@{name}": value for name, value in values.items()}


# -- what is traced ------------------------------------------------------------------------------------------


def test_cuda_libraries_in_a_processs_maps() -> None:
    found = mapped_in("/proc", 70, _MAPS)
    assert [(each.inode, each.is_driver) for each in found] == [(41, True), (42, False), (43, False)]
    assert found[0].reached == "/proc/70/root/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"


def test_maps_are_read_again_only_where_the_driver_is_still_missing(tmp_path: Path) -> None:
    for pid, text in ((70, _MAPS), (71, "")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "maps").write_text(text)
    mapped = Mapped(str(tmp_path), every=30.0)
    assert mapped.look([70, 71, 72], 0.0).keys() == {70}
    assert mapped.unreadable.keys() == {72}
    (tmp_path / "70" / "maps").write_text("")
    (tmp_path / "71" / "maps").write_text(_MAPS)
    assert mapped.look([70, 71, 72], 29.0).keys() == {70}
    assert mapped.look([70, 71, 72], 30.0).keys() == {70, 71}
    assert mapped.look([71], 31.0).keys() == {71}
    assert mapped.unreadable == {}


def test_the_program_probes_each_function_for_the_pids_that_are_meant() -> None:
    text = program([Probe("/a/libcuda.so.1", ("cuMemAlloc_v2", "cuMemCreate")), Probe("/b", ("cudaMalloc",))], [7, 8])
    assert text.count("uretprobe:") == 3
    assert text.count("/pid == 7 || pid == 8/") == 3
    assert "uprobe:/a/libcuda.so.1:cuMemCreate /pid" in text
    assert f"@h[{CREATE}, pid, ($d > 1000) + " in text
    assert text.count("{") == text.count("}")


def test_functions_that_a_library_has() -> None:
    listing = (
        "uprobe:/x/libcuda.so.1:cuMemCreate\nuprobe:/x/libcuda.so.1:cuInit\nuprobe:/x/libcuda.so.1:cuMemAlloc_v2\n"
    )
    assert calls_in(listing) == ("cuMemAlloc_v2", "cuMemCreate")
    assert calls_in("") == ()


def test_the_thresholds_of_allocation_latency_are_bounds() -> None:
    assert {0.05, 0.5} <= set(BOUNDS)
    assert list(BOUNDS) == sorted(set(BOUNDS))


# -- what is counted -----------------------------------------------------------------------------------------


def test_counts_by_engine_over_its_processes() -> None:
    found = counts_of(
        maps(
            h={f"{CREATE},70,5": 2, f"{CREATE},71,5": 1, f"{CREATE},71,17": 4, f"{CREATE},80,0": 9},
            s={f"{CREATE},70": 10, f"{CREATE},71": 20},
            f={f"{CREATE},71": 3},
        ),
        {70: "a", 71: "a", 80: "b"},
    )
    assert found.keys() == {("a", "cuMemCreate"), ("b", "cuMemCreate")}
    count = found["a", "cuMemCreate"]
    assert (count.buckets[5], count.buckets[17], sum(count.buckets)) == (3, 4, 7)
    assert (count.nanoseconds, count.failures) == (30, 3)


_ODD = st.one_of(st.none(), st.integers(), st.text(max_size=5), st.floats())


@given(st.dictionaries(st.sampled_from(["@h", "@s", "@f", "@x"]), st.dictionaries(st.text(max_size=12), _ODD) | _ODD))
def test_what_is_not_in_our_form_is_left_out(odd: dict[str, object]) -> None:
    assert isinstance(counts_of(odd, {0: "a"}), dict)


@pytest.mark.parametrize("key", ["0,70", "99,70,1", "0,71,1", "0,70,18", "0,70,-1", "x,70,1", "0"])
def test_a_key_that_means_nothing_counts_nothing(key: str) -> None:
    assert sum(sum(count.buckets) for count in counts_of(maps(h={key: 1}), {70: "a"}).values()) == 0


def counted(bucket: int, number: int, failures: int = 0) -> Count:
    count = Count(nanoseconds=number, failures=failures)
    count.buckets[bucket] = number
    return count


KEY = ("a", "cuMemCreate")


def only(rows: tuple[CallRow, ...]) -> CallRow:
    (row,) = rows
    return row


def test_counts_go_on_over_restarts_of_bpftrace_and_end_with_their_engine() -> None:
    ledger = Ledger()
    assert only(ledger.rows({KEY: counted(5, 3, 1)}, {"a"}, 0.0)).failures_total == 1
    ledger.close({KEY: counted(5, 4, 1)})
    row = only(ledger.rows({KEY: counted(6, 2)}, {"a"}, 10.0))
    assert (row.seconds.counts[5], row.seconds.counts[6], row.failures_total) == (4, 2, 1)
    assert row.seconds.sum == pytest.approx(6e-9)
    assert only(ledger.rows({}, {"a", "b"}, 11.0)).seconds.counts[5] == 4, "between two of them"
    assert ledger.rows({KEY: counted(6, 2)}, {"b"}, 12.0) == ()
    assert ledger.rows({}, {"a"}, 13.0) == (), "a successor of that name begins with nothing"


def test_quantiles_are_of_the_last_five_minutes() -> None:
    ledger = Ledger()
    slow = counted(BOUNDS.index(0.5), 100)
    assert only(ledger.rows({KEY: slow}, {"a"}, 0.0)).recent_p99_seconds == 0.5
    total = Count()
    total.add(slow)
    for second in range(10, 340, 10):
        row = only(ledger.rows({KEY: total}, {"a"}, float(second)))
    assert (row.recent_calls, row.recent_p50_seconds, row.recent_p99_seconds) == (0, None, None)
    total.add(counted(BOUNDS.index(0.001), 9))
    row = only(ledger.rows({KEY: total}, {"a"}, 341.0))
    assert (row.recent_calls, row.recent_p99_seconds) == (9, 0.001)
    assert sum(row.seconds.counts) == 109, "the counter goes on"


def test_quantiles_of_buckets() -> None:
    buckets = [0] * (len(BOUNDS) + 1)
    assert quantile(buckets, 0.5) is None
    buckets[2], buckets[4] = 98, 2
    assert (quantile(buckets, 0.5), quantile(buckets, 0.98), quantile(buckets, 0.99)) == (
        BOUNDS[2],
        BOUNDS[2],
        BOUNDS[4],
    )
    buckets[-1] = 1000
    assert quantile(buckets, 0.99) == BOUNDS[-1]


# -- the source without bpftrace -----------------------------------------------------------------------------


def test_without_bpftrace_one_line_says_so() -> None:
    source = DriverCallsSource(DriverCallsConfig(enabled=True), bpftrace="kvtide-no-such-command")
    with pytest.raises(SourceError, match="kvtide-no-such-command is not installed"):
        source.read()
    source.close()


@pytest.fixture
def command(tmp_path: Path) -> str:
    """A command that is found, and fails as soon as it is started."""
    path = tmp_path / "tool"
    path.write_text("#!/bin/sh\necho 'ERROR: only as root' >&2\nexit 1\n")
    path.chmod(0o755)
    return str(path)


def test_nothing_is_started_while_no_engine_uses_cuda(tmp_path: Path, command: str) -> None:
    (tmp_path / "70").mkdir()
    (tmp_path / "70" / "maps").write_text("")
    source = DriverCallsSource(
        DriverCallsConfig(enabled=True), lambda: (Watched("a", "core", 0, 70),), proc=str(tmp_path), bpftrace=command
    )
    state = source.read()
    assert (state.attached, state.reason, state.calls, state.restarts) == (False, NOBODY, (), 0)
    source.close()


def test_maps_that_cannot_be_read_are_a_reason(tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.open

    def forbid(path: str, *args: object, **kwargs: object) -> int:
        if str(path).endswith("/maps"):
            raise PermissionError(13, "Permission denied")
        return really(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", forbid)
    source = DriverCallsSource(
        DriverCallsConfig(enabled=True), lambda: (Watched("a", "core", 0, 70),), proc=str(tmp_path), bpftrace=command
    )
    with pytest.raises(SourceError, match="maps can't be read: no permission"):
        source.read()
    source.close()


def test_what_fails_is_tried_again_later_and_later(tmp_path: Path, command: str) -> None:
    (tmp_path / "70").mkdir()
    (tmp_path / "70" / "maps").write_text(_MAPS)
    clock = Clock(0.0)
    watched = [Watched("a", "core", 0, 70)]
    source = DriverCallsSource(
        DriverCallsConfig(enabled=True), lambda: tuple(watched), proc=str(tmp_path), bpftrace=command, clock=clock
    )
    log = tmp_path / "log"
    Path(command).write_text(f"#!/bin/sh\necho x >> {log}\necho 'ERROR: only as root' >&2\nexit 1\n")
    for second in range(40):
        clock.now = float(second)
        with pytest.raises(SourceError, match=r"^bpftrace: ERROR: only as root \(it needs root with CAP_SYS_ADMIN\)$"):
            source.read()
    assert log.read_text().count("x") == 6, "at 0, 1, 3, 7, 15, 31 s"
    watched.clear()
    assert source.read().reason == NOBODY, "with its engine the failure is over"
    source.close()


@pytest.mark.parametrize("path", ["libcuda.so.1", '/x/"libcuda.so', "/x/lib cuda.so", "/x:cuInit{}", "/x\n"])
def test_a_library_whose_name_would_be_a_piece_of_program_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="absolute path of letters"):
        DriverCallsConfig.model_validate({"enabled": True, "library": path})


def test_a_library_by_path_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("sources:\n  driver_calls: {enabled: true, library: /usr/lib64/libcuda.so.1}\n")
    assert load(file, {}).sources.driver_calls.library == Path("/usr/lib64/libcuda.so.1")


@pytest.mark.parametrize("deaf", ["-l", "-f"], ids=["it lists", "it traces"])
def test_closing_ends_a_bpftrace_that_hangs(tmp_path: Path, deaf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs for ever in one of its two uses, and hears no SIGTERM."""
    monkeypatch.setattr("agent.sources.driver_calls.tracer.LIST_SECONDS", 3600.0)
    (tmp_path / "70").mkdir()
    (tmp_path / "70" / "maps").write_text(_MAPS)
    script, told = tmp_path / "bpftrace", tmp_path / "pid"
    hang = f"trap '' TERM; echo $$ >{told}.new; mv {told}.new {told}; while :; do sleep 0.1; done"
    script.write_text(f'#!/bin/sh\nif [ "$1" = {deaf} ]; then {hang}; fi\necho uprobe:/x:cuMemCreate\n')
    script.chmod(0o755)
    source = DriverCallsSource(
        DriverCallsConfig(enabled=True),
        lambda: (Watched("a", "core", 0, 70),),
        proc=str(tmp_path),
        bpftrace=str(script),
    )

    def read() -> None:
        with contextlib.suppress(SourceError):
            source.read()

    reading = threading.Thread(target=read)
    reading.start()
    eventually(told.exists)
    source.close()
    reading.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)
    with pytest.raises(SourceError, match="closed"):
        source.read()
