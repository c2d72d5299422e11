"""GPUs and torch's allocator."""

from __future__ import annotations

from agent.policy.types import Policy
from alerts.exprs import GPU, by_process, estimate, percent, seen, verdict
from alerts.rule import WHO, Alert
from exporters import catalogue as c

GIB = 2**30
AHEAD_SECONDS = 4 * 3600
PROCESS = "(instance, engine, process, role, rank, device)"


def alerts(policy: Policy) -> tuple[Alert, ...]:
    """Return the alerts on devices."""
    page = policy.allocator.fragmentation_page_ratio
    slow = f'max without (bound) ({c.GPU_SLOW.name}{{bound="low"}})'  # sure to grow at least so fast
    return (
        Alert(
            name="KvtideOutOfMemory",
            condition="oom",
            severity="emergency",
            # The verdict, not kvtide_memory_failures_total: a counter begins with its first failure.
            expr=verdict("oom", "page"),
            summary=f"{WHO}: out of memory",
            description=f"""An allocation of {WHO} on {{{{ $labels.instance }}}} failed for good in the last 10 minutes,
                or the kernel killed it for memory. kvtide status says why: truly out, in pieces, taken by others, free
                but unusable, or the host's memory. A bundle of what led to it is on the node.""",
            board="kvtide-allocator",
        ),
        Alert(
            name="KvtideAllocatorFragmented",
            condition="allocator_fragmentation",
            severity="warning",
            expr=f"""{c.ALLOCATOR_FRAGMENTATION_RATIO.name} > {page}
                and on {PROCESS} {c.ALLOCATOR_INACTIVE_BYTES.name} >= {GIB}
                and on {PROCESS} increase({c.ALLOCATOR_RETRIES_TOTAL.name}[15m]) > 0""",
            held="5m",
            summary=f"{WHO}: free memory is in pieces ({{{{ $value | humanizePercentage }}}})",
            description=f"""torch in {WHO} on {{{{ $labels.instance }}}} keeps 1 GiB or more that nothing uses, {{{{
                $value | humanizePercentage }}}} of it in pieces (more than {percent(page)}), and allocations have had
                to be tried again. Out of memory at less than full comes next.""",
            board="kvtide-allocator",
        ),
        Alert(
            name="KvtideAllocatorGrows",
            condition="allocator_growth",
            severity="warning",
            expr=f"""max by (instance, engine, process, gpu) ({by_process(c.ALLOCATOR_USE)})
                and on (instance, engine, process) {verdict("allocator_growth", "warn", "page")}""",
            held="5m",
            summary=f"{WHO}: tensors grow and do not come down",
            description=f"""torch in {WHO} on {{{{ $labels.instance }}}} has allocated {{{{ $value | humanizePercentage
                }}}} of GPU {{{{ $labels.gpu }}}}, and has grown for an hour or longer without coming down.""",
            board="kvtide-allocator",
        ),
        Alert(
            name="KvtideDeviceGrows",
            condition="device_growth",
            severity="warning",
            expr=f"{c.GPU_USE.name} and {GPU} {verdict('device_growth', 'warn')}",
            held="5m",
            summary="GPU {{ $labels.gpu }}: memory beside torch and KV grows",
            description="""Memory of GPU {{ $labels.gpu }} on {{ $labels.instance }} that is neither torch's nor a KV
                pool's grows without coming down; {{ $value | humanizePercentage }} of the card is in use.""",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideDeviceFull",
            condition="device_growth",
            severity="warning",
            # Hours and minutes must agree: a ramp-up is over soon, and what grew last night may have stopped.
            expr=f"""(1 - {c.GPU_USE.name}) / {GPU} ({slow} > 0) < {AHEAD_SECONDS}
                and {GPU} (1 - {c.GPU_USE.name}) / {GPU} ({estimate(c.GPU_GROWTH)} > 0) < {AHEAD_SECONDS}
                and {GPU} {c.GPU_USE.name} > {policy.growth.forecast_held_ratio}""",
            held="15m",
            summary="GPU {{ $labels.gpu }}: full in {{ $value | humanizeDuration }}",
            description="""Used memory of GPU {{ $labels.gpu }} on {{ $labels.instance }} grows, over hours and over the
                last minutes; the card is full in {{ $value | humanizeDuration }} (less than 4 hours).""",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideDeviceFullSoon",
            condition="device_growth",
            severity="emergency",
            expr=f"{seen(c.GPU_USE, 'device_growth', GPU)} and {GPU} {verdict('device_growth', 'page')}",
            summary="GPU {{ $labels.gpu }}: full within half an hour",
            description=f"""{{{{ $value | humanizePercentage }}}} of GPU {{{{ $labels.gpu }}}} on {{{{ $labels.instance
                }}}} is in use and it grows: full in less than {policy.host.limit_seconds / 60:g} minutes.""",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideOverBudget",
            condition="over_budget",
            severity="warning",
            expr=f"{c.GPU_USE.name} and {GPU} {verdict('over_budget', 'warn', 'page')}",
            held="5m",
            summary="GPU {{ $labels.gpu }}: fuller than what its engines were given leaves room for",
            description="""{{ $value | humanizePercentage }} of GPU {{ $labels.gpu }} of {{ $labels.instance }} is in
                use: processes hold more than they were given, or are not ours, and allocations fail or there is no
                room left.""",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideDeadProcessMemory",
            condition="dead_process_memory",
            severity="warning",
            expr=f"{c.DEAD_PROCESS_MEMORY.name} and {GPU} {verdict('dead_process_memory', 'warn', 'page')}",
            summary="GPU {{ $labels.gpu }}: a process that is gone still holds memory",
            description="""The driver books {{ $value | humanize1024 }}B of GPU {{ $labels.gpu }} on {{
                $labels.instance }} on processes that no longer exist.""",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideGpuLost",
            condition="gpu_lost",
            severity="emergency",
            expr=verdict("gpu_lost", "page"),
            # Not only one that is gone: a page is also for errors after which the card must be reset or replaced.
            summary="GPU {{ $labels.gpu }} is lost or failing",
            description="""The driver does not reach GPU {{ $labels.gpu }} of {{ $labels.instance }} any more, or has
                reported an error of it that engines don't survive. kvtide status says which, and what helps.""",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideRanksUneven",
            condition="rank_imbalance",
            severity="warning",
            expr=verdict("rank_imbalance", "warn", "page"),
            held="10m",
            summary="{{ $labels.engine }}: its ranks use different amounts of memory",
            description="""One rank of {{ $labels.engine }} on {{ $labels.instance }} has memory or blocks that
                differ by more than 5 % from the others': the least room decides for all.""",
            board="kvtide-allocator",
        ),
        Alert(
            name="KvtideSleepResidue",
            condition="sleep_residue",
            severity="warning",
            expr=verdict("sleep_residue", "warn", "page"),
            summary="{{ $labels.engine }}: asleep, and still holds device memory",
            description=f"""{{{{ $labels.engine }}}} on {{{{ $labels.instance }}}} sleeps and keeps more than
                {policy.residue.sleep_bytes / GIB:g} GiB of device memory in one process.""",
            board="kvtide-node",
        ),
    )
