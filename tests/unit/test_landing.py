"""The landing page beside the engines: GPUs, waterfalls, engines without hooks, other processes, the host."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec
import pytest

from agent.sources.device.state import GpuMemory, GpuState, Xid
from agent.sources.scrape.state import ScrapedState
from agent.state import AgentState, Judgement
from agent.subject import Subject
from agent.waterfall.state import Part, Waterfall
from exporters.landing import page
from tests.unit.allocators import make_failure
from tests.unit.builders import MIB, make_engine, make_pool, make_state, make_torch_process, make_verdict
from tests.unit.node_builders import (
    make_devices,
    make_gpu,
    make_host,
    make_process,
    make_scraped,
    make_scraped_engine,
    make_source,
)

HOSTILE = "<script>alert(1)</script>\"'&"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;"
LOST = GpuState(
    gpu="1",
    uuid="GPU-1",
    name="NVIDIA H100",
    index=1,
    lost="the GPU has fallen off the bus",
    xids=(Xid(code=79, count=1, last_at=1_700_000_950.0),),
)


def make_waterfall(*parts: Part, **changes: object) -> Waterfall:
    """A GPU of 1000 MiB: 600 of weights, 300 free, 100 unattributed, unless ``parts`` are given."""
    values = {
        "gpu": "0",
        "uuid": "GPU-0",
        "total_bytes": 1000 * MIB,
        "parts": parts
        or (
            Part(part="weights", bytes=600 * MIB, error_bytes=0, owner="m"),
            Part(part="free", bytes=300 * MIB, error_bytes=2 * MIB),
        ),
        "unattributed_bytes": 100 * MIB,
        "error_bytes": 2 * MIB,
    }
    return Waterfall(**values | changes)


def bare(**changes: object) -> AgentState:
    """A state of nothing but ``changes``."""
    nothing = {"sources": (), "processes": (), "failures": (), "device": None, "host": None, "waterfalls": ()}
    nothing |= {"driver_calls": None, "scrape": None, "engines": (), "judgement": None, "judge_errors": {}}
    return msgspec.structs.replace(make_state(), **nothing | changes)


class Balance(HTMLParser):
    """Whether each element ends where it should, and which elements there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_whole_page_is_plain_html_without_script_or_anything_from_outside() -> None:
    text = page(make_state(waterfalls=(make_waterfall(),)))
    parsed = Balance(text)
    assert parsed.open == []
    assert not parsed.seen & {"script", "img", "link", "iframe", "svg", "form"}
    assert not [name for name in parsed.attributes if name.startswith("on") or name == "src"]
    assert "url(" not in text
    assert "@import" not in text


def test_gpus_with_their_memory_and_what_is_wrong() -> None:
    instance = make_gpu(
        "0/3", parent="0", memory=GpuMemory(total=4096 * MIB, used=1024 * MIB, free=3072 * MIB, reserved=0)
    )
    text = page(bare(device=make_devices(make_gpu("0", instances=(instance,)), LOST)))
    assert "driver 580.95.05, CUDA 13.0" in text
    cells = (
        "<td>60.0</td><td>75%</td><td>19.4</td><td>80.0</td><td>0.6</td><td>1</td><td>90%</td><td>H100 80GB HBM3</td>"
    )
    assert f"<tr><th scope=row>0</th>{cells}</tr>" in text
    assert "<tr><th scope=row>0/3</th><td>1.0</td><td>25%</td><td>3.0</td><td>4.0</td>" in text
    assert '<tr class="lost"><th scope=row>1</th><td>lost</td>' in text
    assert '<dt>GPU 1</dt><dd class="bad">LOST: the GPU has fallen off the bus (NVIDIA H100, GPU-1).' in text
    assert '<dt></dt><dd class="bad">XID 79 (the GPU has fallen off the bus), once, ' in text


def test_gpus_that_are_not_read() -> None:
    source = make_source(up=False, reason="no NVIDIA driver on this machine")
    assert "GPUs are not read: no NVIDIA driver on this machine." in page(bare(sources=(source,)))
    assert "GPU" not in page(bare()), "it is switched off"
    assert "The driver knows no GPU." in page(bare(device=msgspec.structs.replace(make_devices(), gpus=())))


def test_a_waterfall_is_a_bar_that_is_told_in_words_and_in_numbers() -> None:
    others = Part(part="other_processes", bytes=0, error_bytes=0, count=0)
    draft = Part(part="draft_model", bytes=0, error_bytes=0, owner="m")
    text = page(bare(waterfalls=(make_waterfall(*make_waterfall().parts, others, draft, reasons=("no word of m",)),)))
    assert "<h2>Memory of GPU 0: 1000.0 MiB</h2>" in text
    label = "weights of m 60.0%, free 30.0%, unattributed 10.0%"
    assert f'<div class="bar" role="img" aria-label="{label}">' in text
    assert f'flex:{600 * MIB} 1 0;min-width:2px;background-color:#cc79a7" title="weights m: 600.0 MiB">W</span>' in text
    assert "weights</th><td>600.0 MiB</td><td>60.0%</td><td></td><td>m</td>" in text
    assert "free</th><td>300.0 MiB</td><td>30.0%</td><td>± 2.0 MiB</td><td></td>" in text
    assert "other processes</th><td>0 B</td><td>0.0%</td><td></td><td>0 processes</td>" in text
    assert "unattributed</th><td>100.0 MiB</td><td>10.0%</td><td>± 2.0 MiB</td>" in text
    assert '<dd class="warn">no word of m.</dd>' in text
    assert "draft model" not in text, "there is none"


def test_parts_that_claim_more_than_there_is() -> None:
    text = page(bare(waterfalls=(make_waterfall(unattributed_bytes=-50 * MIB),)))
    assert "unattributed</th><td>-50.0 MiB</td><td>-5.0%</td>" in text
    assert 'aria-label="weights of m 60.0%, free 30.0%"' in text


def test_where_no_sum_is_claimed_there_is_no_bar() -> None:
    weights = Part(part="weights", bytes=600 * MIB, error_bytes=0, owner="m")
    fall = make_waterfall(weights, total_bytes=None, unattributed_bytes=None, reasons=("this GPU shares memory",))
    text = page(bare(waterfalls=(fall,)))
    assert "weights</th><td>600.0 MiB</td><td></td>" in text
    assert "this GPU shares memory." in text
    assert 'class="bar"' not in text
    assert "unattributed" not in text


def test_a_page_without_gpus_has_no_waterfall() -> None:
    assert "Memory of GPU" not in page(bare())


def test_engines_without_hooks() -> None:
    down = make_scraped_engine(engine="gone", phase="down", reason="nobody listens")
    short = make_verdict(
        kind="kv_pressure",
        sentence="The KV pool is short: 4 < 5 blocks.",
        remedy="Fewer requests.",
        subject=Subject(scope="engine", engine="s"),
    )
    judgement = Judgement(at=0.0, verdicts=(short,))
    text = page(bare(scrape=make_scraped(make_scraped_engine(), down), judgement=judgement))
    assert "<h2>Engines without hooks</h2>" in text
    told = "kv_pressure confirmed: The KV pool is short: 4 &lt; 5 blocks. Fewer requests."
    assert f'<dt>s</dt><dd class="bad">{told}</dd>' in text
    assert "95% of the pool held: 1,900 of 2,000 blocks" in text
    assert (
        '<dt>gone</dt><dd class="warn">down: nobody listens (http://127.0.0.1:8000, last read 0.5 s ago)</dd>' in text
    )
    assert "Only hooks tell these: install kvtide beside the engine." in text


def test_no_engines_without_hooks() -> None:
    assert "No server of vLLM or SGLang without hooks is found" in page(bare(scrape=ScrapedState()))
    assert "without hooks" not in page(bare()), "nobody asked for them"
    source = make_source(source="scrape", up=False, reason="not read yet")
    assert "Pages of engines are not read: not read yet." in page(bare(sources=(source,)))


def test_how_an_engine_that_runs_already_gets_here() -> None:
    hint = "set sources.scrape.discover to true in the agent&#x27;s configuration."
    assert hint in page(bare())
    assert hint not in page(bare(sources=(make_source(source="scrape"),))), "they are looked for already"


def test_the_host() -> None:
    text = page(bare(host=make_host()))
    assert "<h2>Host</h2>" in text
    assert "<dt>memory</dt><dd>19.5 GiB of 62.5 GiB available, /dev/shm" in text
    assert '<dt>dead</dt><dd class="bad">GPU 0: 5.0 GiB are booked on process 99, which is gone</dd>' in text
    assert "<h2>Host</h2>" not in page(bare())


def test_failures_are_with_their_engine_or_with_the_other_processes() -> None:
    healthy = make_engine(verdicts=(), detail=None, members=())
    now = make_state().at
    ours = make_failure(engine=healthy.engine)
    assert "Nothing is wrong." in page(bare(engines=(healthy,)))
    text = page(bare(engines=(healthy,), failures=(ours,), at=ours.event.at + 1))
    assert "Nothing is wrong." not in text
    assert "<dt>failed</dt>" in text
    assert "Other processes" not in text
    other = make_failure(engine="", process="train", role="torch", rank=0)
    text = page(bare(engines=(healthy,), failures=(other,), processes=(make_torch_process(),), at=now))
    assert "Nothing is wrong." in text
    assert "<dt>failed</dt>" in text.partition("<h2>Other processes with PyTorch</h2>")[2]


@pytest.mark.parametrize(
    "change",
    [
        {"device": make_devices(make_gpu("0", name=HOSTILE))},
        {"device": make_devices(driver=HOSTILE)},
        {"device": make_devices(msgspec.structs.replace(LOST, lost=HOSTILE))},
        {"sources": (make_source(up=False, reason=HOSTILE),)},
        {"sources": (make_source(source="scrape", up=False, reason=HOSTILE),)},
        {"waterfalls": (make_waterfall(gpu=HOSTILE),)},
        {"waterfalls": (make_waterfall(reasons=(HOSTILE,)),)},
        {"waterfalls": (make_waterfall(Part(part="weights", bytes=MIB, error_bytes=0, owner=HOSTILE)),)},
        {"scrape": make_scraped(make_scraped_engine(engine=HOSTILE))},
        {"processes": (make_torch_process(process=HOSTILE),)},
        {"host": make_host(processes=(make_process(engine=HOSTILE),))},
    ],
)
def test_hostile_text_is_escaped(change: dict[str, object]) -> None:
    text = page(bare(**change))
    assert ESCAPED in text
    assert "<script" not in text


def test_without_engines_nothing_is_empty() -> None:
    alone = page(bare())
    assert "<h2>No engine is connected at /run/kvtide/agent.sock</h2><p>Start vLLM" in alone
    assert "<p></p>" not in alone
    beside = page(bare(scrape=make_scraped(make_scraped_engine())))
    assert "<h2>No engine with hooks is connected</h2><p>Connections refused" in beside
    assert "Start vLLM" not in beside
    link = msgspec.structs.replace(bare().link, refused_peers={})
    assert "</p><p></p>" not in page(bare(link=link))
    assert "<h2>No engine is connected at" in page(bare(link=link))


def test_what_the_bar_shows_is_named_and_adds_up() -> None:
    text = page(bare(engines=(make_engine(),)))
    assert '<dt><span class="key leak"></span>of it orphaned</dt><dd>4 (4.0 MiB)</dd>' in text
    assert '<dt><span class="key held"></span>held by requests</dt><dd>296 (296.0 MiB)</dd>' in text
    assert "<dt>held</dt><dd>300 (300.0 MiB)</dd>" in text
    unknown = page(bare(engines=(make_engine(pool=make_pool(orphaned=None)),)))
    assert '<dt><span class="key held"></span>held by requests</dt><dd>not known</dd>' in unknown
