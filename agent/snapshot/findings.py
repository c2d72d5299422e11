"""What there is to say about a device, in sentences; thresholds as in the policy (fragmentation 20 and 40 %, overcommit
1.2 and 1.5). A ratio of a little is nothing: free space counts from a share of what is reserved."""

from __future__ import annotations

from agent.retained import count_of
from agent.snapshot.report import DeviceReport, Finding, Open
from agent.snapshot.traces import TENTHS
from agent.snapshot.usage import BAND_LOW
from agent.units import human_bytes

FRAGMENTED, HIGHLY_FRAGMENTED = 0.20, 0.40
OVERCOMMIT, HIGH_OVERCOMMIT = 1.2, 1.5
MATTERS = 0.05  # of what is reserved: less free space than that can't be what is missing
AWAITING = 0.02
STEADY_TENTHS = 8
STEADY_COUNT = 10
STEADY_ENDED = 0.5  # a site that ends more than this of what it allocates is busy, and what is open is its newest
CHURN = 0.5  # frees by allocations: below that a trace shows a start
BAND_SHARE = 0.30


def findings(report: DeviceReport) -> tuple[Finding, ...]:
    """Return what is wrong first, then what is worth knowing; one good word where nothing is."""
    rows = [*_ooms(report), *_leaks(report), *_fragmentation(report), *_band(report), *_awaiting(report)]
    rows.sort(key=lambda row: row.level != "bad")
    if not any(row.level == "bad" for row in rows):
        rows.insert(0, Finding(level="good", sentence=_nothing(report)))
    return tuple(rows)


def _ooms(report: DeviceReport) -> list[Finding]:
    trace = report.trace
    if trace is None or not trace.ooms:
        return []
    last = trace.ooms[-1]
    often = f"Out of memory {trace.ooms_total:,} times; the last" if trace.ooms_total > 1 else "Out of memory once"
    return [Finding(level="bad", sentence=f"{often}: {last.sentence}")]


def steady(row: Open) -> bool:
    """Return whether a site looks like a leak: what it allocates stays, from the beginning of the trace to its end."""
    ended = 1 - row.site.count / row.allocations
    return row.tenths >= STEADY_TENTHS and row.site.count >= STEADY_COUNT and ended <= STEADY_ENDED


def _leaks(report: DeviceReport) -> list[Finding]:
    trace = report.trace
    # While a model is loaded everything stays, as it should: only where most allocations end is one that stays odd.
    if trace is None or trace.actions.get("free_completed", 0) < CHURN * trace.actions.get("alloc", 0):
        return []
    rows = [row for row in trace.open if steady(row)]
    return [
        Finding(
            level="bad",
            sentence=f"{row.site.label} keeps what it allocates: {row.site.count:,} of {row.allocations:,} allocations "
            f"({human_bytes(row.site.size)}) did not end, in {row.tenths} of {TENTHS} parts of the trace.",
        )
        for row in rows[:3]
    ]


def _fragmentation(report: DeviceReport) -> list[Finding]:
    common = report.common
    if common.fragmentation is None or common.overcommit is None:
        return []
    ratio = f"{common.fragmentation:.0%} fragmented ({human_bytes(common.inactive)} free, the largest block "
    ratio += f"{human_bytes(common.largest_free)})"
    share = common.inactive / common.reserved
    if share < MATTERS:
        if common.fragmentation > FRAGMENTED:
            return [Finding(level="note", sentence=f"{ratio}, but that is only {share:.1%} of what is reserved.")]
        return []
    rows = []
    if common.fragmentation > FRAGMENTED:
        level = "bad" if common.fragmentation > HIGHLY_FRAGMENTED else "note"
        gain = report.what_if
        if gain.already_expandable:
            hint = " Segments are expandable already."
        elif gain.now > gain.high:
            hint = f" {human_bytes(gain.now)} are whole segments: empty_cache() gives them back."
        else:
            hint = f" expandable_segments would give back {human_bytes(gain.low)} to {human_bytes(gain.high)} of it."
        rows.append(Finding(level=level, sentence=f"{ratio}, {share:.0%} of what is reserved.{hint}"))
    if common.overcommit >= OVERCOMMIT:
        level = "bad" if common.overcommit >= HIGH_OVERCOMMIT else "note"
        sentence = f"Reserved is {common.overcommit:.2f} times what is allocated."
        rows.append(Finding(level=level, sentence=sentence))
    return rows


def _band(report: DeviceReport) -> list[Finding]:
    free = sum(band.size for band in report.bands)
    band = next(band for band in report.bands if band.low == BAND_LOW)
    if not free or free < MATTERS * report.usage.reserved or band.size < BAND_SHARE * free:
        return []
    holds = f"{count_of(band.count, 'free block')} of 16 to 32 MiB {'holds' if band.count == 1 else 'hold'}"
    sentence = f"{holds} {band.size / free:.0%} of what is free: too small for a large request, kept from the driver."
    return [Finding(level="note", sentence=sentence)]


def _awaiting(report: DeviceReport) -> list[Finding]:
    waiting = report.usage.awaiting
    if waiting < AWAITING * report.usage.reserved or not waiting:
        return []
    return [Finding(level="note", sentence=f"{human_bytes(waiting)} are freed but wait for another stream.")]


def _nothing(report: DeviceReport) -> str:
    if not report.usage.reserved:
        return "Nothing is reserved on this device."
    if report.trace is None:
        return "No fragmentation that matters. One file without a trace can't show a leak."
    return "No fragmentation that matters, no failed allocation, and no call site that only ever allocates."
