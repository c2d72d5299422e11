"""Allocator: what torch keeps of the device, in which pieces, and whether an allocation can still succeed."""

from __future__ import annotations

from agent.policy.types import Policy
from dashboards.board import Board, Row
from dashboards.boards import absent, ill
from dashboards.panels import BAD, above, bars, lines, stat
from dashboards.query import Chosen, Query, counted, estimate, rate, who
from dashboards.tables import Column, table
from dashboards.units import TIMES, each_second, of, share
from exporters import catalogue as c

some = Chosen("engine")
WHO = "{{who}}"
WHOSE = "{{who}}, {{device}} on {{instance}}"
# Lower bounds of bands, by their length: series come in the order of their names, in which 16 stands before 2.
SIZES = ("0", "[1-9]MiB", "[1-9][0-9]MiB", "[1-9][0-9][0-9]MiB", "[0-9]+GiB")
KINDS = "allocator_fragmentation|allocator_growth|oom|sleep_residue|over_budget"
BYTES = of(c.ALLOCATOR_RESERVED_BYTES)


def _by(expr: str, legend: str) -> Query:
    """Return a query whose series say whose allocator it is: an engine's process, or one of no engine."""
    return Query(who(expr, "engine", "process", "role", "rank"), legend)


def rows(policy: Policy) -> tuple[Row, ...]:
    """Return the board's rows."""
    limits = policy.allocator
    fragmented = (
        (limits.fragmentation_warn_ratio, "yellow"),
        (limits.fragmentation_alert_ratio, "orange"),
        (limits.fragmentation_page_ratio, BAD),
    )
    overcommit = above(limits.overcommit_light, limits.overcommit_heavy)
    worst = some(c.ALLOCATOR_FRAGMENTATION_RATIO)
    return (
        Row(
            "Is it ill, since when, whose",
            (
                ill.pages(some, KINDS),
                ill.standing_for(some, KINDS),
                stat(
                    "Worst fragmentation",
                    "Free memory that is not in the largest free block; of little meaning while little is free.",
                    _by(f"topk(1, {worst})", WHO),
                    unit=of(c.ALLOCATOR_FRAGMENTATION_RATIO),
                    steps=fragmented,
                    none=absent.TORCH,
                    name=True,
                ),
                stat(
                    "Kept by torch, unused",
                    "Reserved and inactive memory of all processes chosen.",
                    Query(f"sum({some(c.ALLOCATOR_INACTIVE_BYTES)})", "inactive"),
                    unit=BYTES,
                    none=absent.TORCH,
                ),
                stat(
                    "Out of memory, in range",
                    "Allocations that failed for good.",
                    Query(f"sum({counted(some(c.ALLOCATOR_OOMS_TOTAL))})", "failed"),
                    unit=of(c.ALLOCATOR_OOMS_TOTAL),
                    steps=((1, BAD),),
                    none=absent.TORCH,
                ),
                stat(
                    "Retries, in range",
                    "Allocations that failed at first, so that torch gave back all it could: each costs a stall.",
                    Query(f"sum({counted(some(c.ALLOCATOR_RETRIES_TOTAL))})", "retries"),
                    unit=of(c.ALLOCATOR_RETRIES_TOTAL),
                    steps=above(1),
                    none=absent.TORCH,
                ),
            ),
            across=6,
            high=4,
        ),
        Row(
            "What torch has",
            (
                lines(
                    "Reserved, and what of it is used",
                    "What torch has from the driver, what is active or waits for a stream, and what tensors use.",
                    _by(some(c.ALLOCATOR_RESERVED_BYTES), f"reserved, {WHOSE}"),
                    _by(some(c.ALLOCATOR_ACTIVE_BYTES), f"active, {WHOSE}"),
                    _by(some(c.ALLOCATOR_ALLOCATED_BYTES), f"allocated, {WHOSE}"),
                    unit=BYTES,
                    none=absent.TORCH,
                ),
                lines(
                    "Inactive",
                    "Kept and used by nothing; the split part can't be given back to the driver.",
                    _by(some(c.ALLOCATOR_INACTIVE_BYTES), f"inactive, {WHOSE}"),
                    _by(some(c.ALLOCATOR_INACTIVE_SPLIT_BYTES), f"of it split, {WHOSE}"),
                    _by(some(c.ALLOCATOR_RELEASABLE_BYTES), f"can be given back, {WHOSE}"),
                    unit=BYTES,
                    none=absent.TORCH,
                ),
                lines(
                    "Fragmentation",
                    "How much of the free memory is not in the largest free block, in the pools that all share.",
                    _by(worst, WHOSE),
                    unit=share("of the free memory"),
                    steps=fragmented,
                    none=absent.TORCH,
                    top=1,
                ),
                lines(
                    "Overcommit",
                    "Reserved over allocated: 1 where nothing is kept that is not used.",
                    _by(f"{some(c.ALLOCATOR_RESERVED_BYTES)} / ({some(c.ALLOCATOR_ALLOCATED_BYTES)} > 0)", WHOSE),
                    unit=TIMES,
                    steps=overcommit,
                    none=absent.TORCH,
                ),
            ),
        ),
        Row(
            "Can an allocation still succeed",
            (
                lines(
                    "Largest free block",
                    "The largest piece that can be had without asking the driver, beside all that is free.",
                    _by(some(c.ALLOCATOR_LARGEST_FREE_BLOCK_BYTES), f"largest, {WHOSE}"),
                    _by(some(c.ALLOCATOR_FREE_BYTES), f"all free, {WHOSE}"),
                    unit=BYTES,
                    none=absent.TORCH,
                ),
                bars(
                    "Free memory by size of its blocks",
                    "Bytes in free blocks by size: much in small ones is memory that no large tensor can use.",
                    *(
                        Query(f"sum by (band) ({some(c.ALLOCATOR_FREE_BLOCK_BYTES, band=f'~{size}.*')})", "{{band}}")
                        for size in SIZES
                    ),
                    unit=BYTES,
                    none=absent.TORCH,
                ),
                lines(
                    "Retries and failures",
                    "Allocations that emptied torch's cache, and those that failed for good.",
                    _by(rate(some(c.ALLOCATOR_RETRIES_TOTAL)), f"retries, {WHOSE}"),
                    _by(rate(some(c.ALLOCATOR_OOMS_TOTAL)), f"out of memory, {WHOSE}"),
                    unit=each_second(c.MEMORY_FAILURES_TOTAL),
                    none=absent.TORCH,
                ),
                table(
                    "Failures, by cause",
                    "Failed allocations and CUDA errors in the range, with what was the matter.",
                    {
                        "engine": "Engine",
                        "process": "Process",
                        "instance": "Node",
                        "kind": "Kind",
                        "cause": "Cause",
                    },
                    Column(
                        "Failures",
                        "sum by (engine, process, instance, kind, cause) "
                        f"({counted(some(c.MEMORY_FAILURES_TOTAL))}) > 0",
                        of(c.MEMORY_FAILURES_TOTAL),
                        ((1, BAD),),
                    ),
                    none="No allocation has failed",
                    worst_first="Failures",
                ),
            ),
        ),
        Row(
            "Where it comes from",
            (
                lines(
                    "Private pools",
                    "Reserved for CUDA graphs and for sleep mode: nothing else may use it.",
                    _by(some(c.ALLOCATOR_PRIVATE_RESERVED_BYTES), f"{{{{kind}}}}, {WHOSE}"),
                    unit=BYTES,
                    none="No process has private pools",
                ),
                lines(
                    "Growth of allocated memory",
                    "How fast what tensors use grows, as a share of the device; steady state is flat.",
                    _by(f"60 * {estimate(some, c.ALLOCATOR_GROWTH)}", "{{who}}, GPU {{gpu}} on {{instance}}"),
                    unit=share("of the device a minute"),
                    steps=above(policy.growth.warn_per_minute, policy.growth.page_per_minute),
                    none=absent.TORCH,
                ),
                lines(
                    "Sleep mode",
                    "What sleep mode's allocator has on the device, by tag; asleep it should be next to nothing.",
                    _by(some(c.ALLOCATOR_TAG_MAPPED_BYTES), f"{{{{tag}}}}, {WHOSE}"),
                    unit=BYTES,
                    none="No engine here uses sleep mode",
                ),
                lines(
                    "Calls to the driver",
                    "Memory taken from and given back to the driver: rare in steady state.",
                    _by(rate(some(c.ALLOCATOR_DEVICE_ALLOCS_TOTAL)), f"taken, {WHOSE}"),
                    _by(rate(some(c.ALLOCATOR_DEVICE_FREES_TOTAL)), f"given back, {WHOSE}"),
                    unit=each_second(c.ALLOCATOR_DEVICE_ALLOCS_TOTAL),
                    none=absent.TORCH,
                ),
            ),
        ),
    )


BOARD = Board(
    "kvtide-allocator",
    "kvtide / Allocator",
    "What torch keeps of the device, in which pieces, and whether an allocation can still succeed.",
    rows,
)
