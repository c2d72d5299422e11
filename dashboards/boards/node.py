"""Node: where each GPU's memory is, what grows beside the KV pool, and how near the host's limits are."""

from __future__ import annotations

from agent.policy.types import Policy
from dashboards.board import Board, Row, link
from dashboards.boards import absent, ill
from dashboards.panels import BAD, Panel, above, below, lines, spans, stat, with_interval
from dashboards.query import Chosen, Query, estimate, rate
from dashboards.tables import Column, table
from dashboards.units import PLAIN, each_second, of, share
from exporters import catalogue as c

node = Chosen()
gpu = Chosen("gpu")
BYTES = of(c.GPU_OTHER)
OF_DEVICE = share("of the device a minute")
WHOSE_GPU = "GPU {{gpu}} on {{instance}}"
WHOSE_PROCESS = "{{engine}} {{role}}/{{rank}}"
# From what serves to what is free; the same colour family for what belongs together.
PARTS = {
    "weights": "dark-blue",
    "draft_model": "blue",
    "lora": "light-blue",
    "kv_held": "dark-green",
    "kv_cached_idle": "green",
    "kv_empty": "light-green",
    "kv_unsplit": "semi-dark-green",
    "encoder_cache": "super-light-green",
    "graphs": "purple",
    "torch_active": "light-purple",
    "torch_inactive": "dark-yellow",
    "context": "dark-orange",
    "untold": "orange",
    "other_processes": "red",
    "driver": "semi-dark-orange",
    "unattributed": "dark-red",
    "free": "rgba(128, 128, 128, 0.3)",
}
TOTAL = "the whole device"


def waterfall() -> Panel:
    """Return one GPU's memory by part; the parts sum to the device."""
    queries = [Query(f"sum by (part) ({gpu(c.WATERFALL_BYTES, part=part)})", "{{part}}") for part in PARTS]
    total = Query(f"sum({gpu(c.GPU_MEMORY, kind='total')})", TOTAL)
    return (
        lines(
            "Memory of GPU $gpu",
            "Each part of the GPU's memory from its own source; stacked they meet the line of the whole device, and "
            "what nobody claims is unattributed.",
            *queries,
            total,
            unit=BYTES,
            none=absent.GPU,
            stacked=True,
            colours={**PARTS, TOTAL: "text"},
            apart=(TOTAL,),
        )
        .repeat("gpu")
        .repeat_direction("h")
        .max_per_row(2)
    )


def rows(policy: Policy) -> tuple[Row, ...]:
    """Return the board's rows."""
    use = above(policy.use.warn_ratio, policy.use.page_ratio)
    grows = above(policy.growth.warn_per_minute, policy.growth.page_per_minute)
    host_grows = above(policy.host.warn_per_minute, policy.host.page_per_minute)
    limit = estimate(node, c.HOST_LIMIT_TIME)
    return (
        Row(
            "Is it ill, since when, how long left, whose",
            (
                ill.health(policy, gpu, "device|host"),
                ill.pages(node),
                ill.standing_for(node),
                stat(
                    "Host memory left",
                    "Until the first process or cgroup reaches its limit, where its growth is sure.",
                    Query(f"bottomk(1, {limit})", f"{WHOSE_PROCESS} {{{{what}}}}"),
                    unit=ill.SECONDS,
                    steps=below(policy.host.limit_seconds * 2, policy.host.limit_seconds),
                    none=absent.FORECAST,
                    name=True,
                ),
                stat(
                    "Fullest GPU",
                    "The GPU with the most of its memory in use; 90 % is usual, for the KV pool is taken at once.",
                    Query(f"topk(1, {gpu(c.GPU_USE)})", WHOSE_GPU),
                    unit=of(c.GPU_USE),
                    none=absent.GPU,
                    name=True,
                ),
                stat(
                    "GPUs lost",
                    "GPUs that the driver does not answer for.",
                    Query(f"count({gpu(c.GPU_UP)} == 0) or 0 * count({gpu(c.GPU_UP)})", "lost"),
                    unit=PLAIN,
                    steps=((1, BAD),),
                    none=absent.GPU,
                ),
            ),
            across=6,
            high=4,
        ),
        Row("Where the memory is", (waterfall(),), across=1, high=12),
        Row(
            "Parts, and what is wrong",
            (
                table(
                    "Parts now",
                    "The parts of each GPU's memory with their owner, and how far each may be from the truth.",
                    {"instance": "Node", "gpu": "GPU", "part": "Part", "engine": "Whose"},
                    Column("Memory", f"max by (instance, gpu, part, engine) ({gpu(c.WATERFALL_BYTES)})", BYTES),
                    Column(
                        "Give or take", f"max by (instance, gpu, part, engine) ({gpu(c.WATERFALL_ERROR_BYTES)})", BYTES
                    ),
                    none=absent.GPU,
                    links={"Whose": ("Open this engine", link("kvtide-engine", instance="Node", engine="Whose"))},
                    worst_first="Memory",
                ),
                ill.verdicts(
                    node, {"Engine": ("Open this engine", link("kvtide-engine", instance="Node", engine="Engine"))}
                ),
            ),
            across=1,
            high=8,
        ),
        Row(
            "GPUs",
            (
                lines(
                    "GPU memory in use",
                    "Used share of each GPU; use alone is no fault, use that grows beside the KV pool is.",
                    Query(gpu(c.GPU_USE), WHOSE_GPU),
                    unit=share("of the device"),
                    steps=use,
                    none=absent.GPU,
                    top=1,
                ),
                with_interval(
                    lines(
                        "Growth of GPU memory",
                        "How fast used memory grows now, and over hours with the lower end of its 95 % interval.",
                        Query(f"60 * {gpu(c.GPU_GROWTH, bound='estimate')}", WHOSE_GPU),
                        Query(f"60 * {gpu(c.GPU_SLOW, bound='estimate')}", f"over hours, {WHOSE_GPU}"),
                        Query(f"60 * {gpu(c.GPU_SLOW, bound='low')}", f"over hours, {WHOSE_GPU} low"),
                        unit=OF_DEVICE,
                        steps=grows,
                        none=absent.GPU,
                    )
                ),
                lines(
                    "Memory beside torch and the KV pool",
                    "What neither torch nor a pool accounts for, what foreign processes hold, and what the driver "
                    "books on processes that are gone.",
                    Query(gpu(c.GPU_OTHER), f"other, {WHOSE_GPU}"),
                    Query(gpu(c.GPU_FOREIGN), f"foreign, {WHOSE_GPU}"),
                    Query(gpu(c.DEAD_PROCESS_MEMORY), f"dead processes, {WHOSE_GPU}"),
                    unit=BYTES,
                    none=absent.GPU,
                ),
                lines(
                    "GPU busy",
                    "Share of the time in which a kernel ran; busy is not the same as well used.",
                    Query(gpu(c.GPU_UTILISATION), WHOSE_GPU),
                    unit=share("of the time"),
                    none=absent.GPU,
                    top=1,
                ),
                lines(
                    "GPU errors so far",
                    "Errors that the driver reported (XIDs), and memory errors that ECC could not correct.",
                    Query(gpu(c.GPU_XID), f"XID {{{{xid}}}}, {WHOSE_GPU}"),
                    Query(gpu(c.GPU_ECC, kind="uncorrected"), f"uncorrected, {WHOSE_GPU}"),
                    unit=of(c.GPU_XID),
                    none="No error was reported",
                    stepped=True,
                ),
                spans(
                    "GPU slowed down",
                    "Why clocks are below what was asked for; an idle GPU is left out.",
                    Query(f"{gpu(c.GPU_THROTTLED, reason='!gpu_idle')} == 1", f"{{{{reason}}}}, {WHOSE_GPU}"),
                    none="No GPU is slowed down",
                    words={"1": ("slowed", "orange")},
                ),
            ),
        ),
        Row(
            "Host",
            (
                lines(
                    "Memory limits",
                    "How much of its limit each process or cgroup of an engine uses: at the limit the kernel kills.",
                    Query(node(c.HOST_LIMIT_USE), f"{WHOSE_PROCESS} {{{{what}}}} on {{{{instance}}}}"),
                    unit=share("of the limit"),
                    steps=use,
                    none="No engine here has a limit",
                    top=1,
                ),
                lines(
                    "Growth of host memory",
                    "How fast each engine's processes and cgroups grow, as a share of themselves.",
                    Query(f"60 * {estimate(node, c.HOST_GROWTH)}", f"{WHOSE_PROCESS} {{{{what}}}} on {{{{instance}}}}"),
                    unit=share("of itself a minute"),
                    steps=host_grows,
                    none=absent.HOOKS,
                ),
                lines(
                    "Host memory",
                    "What the host has and what is still available to its processes.",
                    Query(node(c.HOST_MEMORY, kind="total"), "total, {{instance}}"),
                    Query(node(c.HOST_MEMORY, kind="available"), "available, {{instance}}"),
                    unit=of(c.HOST_MEMORY),
                    none=absent.AGENT,
                ),
                lines(
                    "Memory of engines' processes",
                    "RAM of each process, pages that it shares with others included.",
                    Query(node(c.PROCESS_RESIDENT), f"{WHOSE_PROCESS} on {{{{instance}}}}"),
                    Query(node(c.CHILDREN_RESIDENT), "children of {{engine}} on {{instance}}"),
                    unit=of(c.PROCESS_RESIDENT),
                    none="No engine's process is seen here",
                ),
                lines(
                    "Waiting for host memory",
                    "Share of the time in which all tasks of an engine's cgroup waited for memory.",
                    Query(rate(node(c.CGROUP_STALLED, kind="full")), f"{WHOSE_PROCESS} on {{{{instance}}}}"),
                    unit=each_second(c.CGROUP_STALLED),
                    none="No engine's cgroup tells its pressure",
                ),
                lines(
                    "Killed for memory so far",
                    "Processes of engines, and of the whole host, that the kernel killed because memory ran out.",
                    Query(node(c.ENGINE_OOM_KILLS), "{{engine}} on {{instance}}"),
                    Query(node(c.HOST_OOM_KILLS), "any process on {{instance}}"),
                    unit=of(c.HOST_OOM_KILLS),
                    none="No agent tells the kernel's kills",
                    stepped=True,
                ),
            ),
        ),
        Row(
            "What the agent can see",
            (
                spans(
                    "Sources",
                    "Whether each source of the agent is read; a source that is down has no values, here or elsewhere.",
                    Query(node(c.SOURCE_UP), "{{source}} on {{instance}}"),
                    none=absent.AGENT,
                    words={"0": ("down", "red"), "1": ("read", "green")},
                ),
                lines(
                    "Failed readings",
                    "Readings that failed or took longer than their timeout.",
                    Query(rate(node(c.SOURCE_FAILURES_TOTAL)), "{{source}} on {{instance}}"),
                    unit=each_second(c.SOURCE_FAILURES_TOTAL),
                    none=absent.AGENT,
                ),
            ),
        ),
    )


BOARD = Board(
    "kvtide-node",
    "kvtide / Node",
    "Where each GPU's memory is, what grows beside the KV pool, and how near the host's limits are.",
    rows,
    variables=("gpu",),
)
