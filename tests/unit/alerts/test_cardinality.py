"""How many series one node makes: eight GPUs, eight engines of one worker each, fifty tenants.

The sizes are those of real engines: real buckets, each engine with all its sections, each GPU with its waterfall. What
few have is left out: connectors, offload tiers, speculation, a PyTorch process, traced driver calls.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from agent.state import AgentState
from agent.waterfall.state import Part
from alerts.build import BUILT
from engine_hooks.core.allocation import WAIT_SECONDS
from engine_hooks.core.buckets import BLOCK_SECONDS, PROMPT_TOKENS, REQUEST_SECONDS
from engine_hooks.detail import Histogram
from exporters.catalogue import CATALOGUE
from exporters.collectors import COLLECTORS
from tests.unit.builders import make_engine, make_state, make_worker
from tests.unit.details import make_allocation, make_detail, make_group, make_tenant, make_work
from tests.unit.judgements import make_engine_signals, make_judgement, make_score, make_signals
from tests.unit.node_builders import make_cgroup, make_devices, make_gpu, make_host, make_process, make_waterfall

NODE, TENANTS = 8, 50
STATED = 6_500  # docs/alerts.md; the goal is 2,000
PAGE = Path(__file__).parents[3] / "docs" / "alerts.md"


def buckets(bounds: tuple[float, ...]) -> Histogram:
    return Histogram(bounds=tuple(float(each) for each in bounds), counts=(1,) * (len(bounds) + 1), sum=1.0)


def tenants_of(number: int) -> list[str]:
    """Each tenant is at home on one engine."""
    return [f"t{each}" for each in range(TENANTS) if each % NODE == number]


def parts_of(engine: str) -> tuple[Part, ...]:
    return tuple(replace(part, owner=engine) for part in make_waterfall().parts if part.owner in ("m", ""))


def whole_node() -> AgentState:
    engines = []
    for number in range(NODE):
        detail = make_detail(
            transfer_id="",
            pools=(),
            groups=(make_group(),),
            leaks=(),
            delayed=(),
            pins=(),
            tenants=tuple(
                make_tenant(
                    tenant=name,
                    session_lifetime_seconds=buckets(REQUEST_SECONDS),
                    session_idle_seconds=buckets(REQUEST_SECONDS),
                )
                for name in tenants_of(number)
            ),
            allocation=make_allocation(block_seconds=buckets(BLOCK_SECONDS), wait_seconds=buckets(WAIT_SECONDS)),
            work=make_work(request_seconds=buckets(REQUEST_SECONDS), prompt_tokens=buckets(PROMPT_TOKENS)),
            speculation=None,
            tiers=(),
        )
        engines.append(
            make_engine(
                engine=f"m{number}", engine_id=f"e{number}", detail=detail, members=(make_worker(rank=0),), verdicts=()
            )
        )
    names = [engine.engine for engine in engines]
    one = make_signals()
    signals = make_signals(
        engines=tuple(make_engine_signals(engine=name) for name in names),
        tenants=tuple(
            replace(one.tenants[0], engine=f"m{number}", tenant=name)
            for number in range(NODE)
            for name in tenants_of(number)
        ),
        allocators=tuple(replace(one.allocators[0], engine=name, rank=0, gpu=str(at)) for at, name in enumerate(names)),
        gpus=tuple(replace(one.gpus[0], gpu=str(number)) for number in range(NODE)),
        host=tuple(replace(one.host[0], engine=name) for name in names),
    )
    scores = tuple(
        make_score(scope=scope, engine=name if scope != "device" else "", gpu=str(at) if scope == "device" else "")
        for at, name in enumerate(names)
        for scope in ("engine", "kv", "device", "host")
    )
    falls = tuple(
        replace(
            fall, gpu=str(at), parts=tuple(replace(part, owner=name) for part in fall.parts if part.owner in ("m", ""))
        )
        for at, name in enumerate(names)
        for fall in [make_waterfall()]
    )
    return make_state(
        *engines,
        processes=(),
        failures=(),
        failure_counts=(),
        scrape=None,
        driver_calls=None,
        device=make_devices(*(make_gpu(str(number)) for number in range(NODE))),
        host=make_host(
            processes=tuple(make_process(engine=name, role=role) for name in names for role in ("core", "frontend")),
            children=(),
            cgroups=tuple(make_cgroup(engine=name) for name in names),
            restarts=(),
            killed=(),
            dead=(),
        ),
        waterfalls=falls,
        judgement=make_judgement(signals=signals, scores=scores),
    )


def series(state: AgentState) -> Counter[str]:
    """Series by family: a histogram is its buckets, its sum and its count."""
    found: Counter[str] = Counter()
    for collect in COLLECTORS:
        for sample in collect(state):
            value = sample.value
            found[sample.metric.name] += len(value.counts) + 2 if isinstance(value, Histogram) else 1
    return found


def test_a_large_node_makes_no_more_series_than_is_stated() -> None:
    found = series(whole_node())
    total = sum(found.values())
    print(f"{total} series; the largest families: {found.most_common(12)}")
    assert total <= STATED, found.most_common(12)
    assert total > 0.8 * STATED, "state what there is"
    assert f"{STATED:,} series" in PAGE.read_text()


def test_what_the_page_tells_to_drop_no_rule_reads() -> None:
    dropped = re.search(r"regex: (\S+)", PAGE.read_text())
    assert dropped is not None
    names = [metric.name for metric in CATALOGUE]
    names += [f"{metric.name}_bucket" for metric in CATALOGUE if metric.type == "histogram"]
    gone = [name for name in names if re.fullmatch(dropped[1], name)]
    assert len(gone) == 5
    rules = "".join(file.read_text() for file in BUILT.glob("kvtide-*.yml"))
    assert [name for name in gone if re.search(rf"\b{name}\b", rules)] == []
