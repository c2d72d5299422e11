"""The advice as a document: what to set, then what every value has shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from agent.advise.compare import LABELS, MEASURES, Advice, Tried, advise, shown
from agent.advise.picture import bars
from agent.report.document import Block, Document, Heading, Items, Lead, Picture, Quiet, Table

TOLD = (*MEASURES, "use_ratio")
CAVEATS = (
    "The block pool and the scheduler are vLLM's own; time is virtual, and a step lasts the same whatever is in it: "
    "the P99 is a proxy, to compare values by, not a promise.",
    "Attention kernels run slower or do not exist for some block sizes on some cards: look that up before changing it.",
    "A change is called sure where no run with the usual value was as good as any with the other.",
)


def document(results: Sequence[Tried], load: str) -> Document:
    """Return the report; ``results`` come setting by setting. ``load``: what was played, in words."""
    groups = [(setting, list(each)) for setting, each in groupby(results, key=lambda each: each.setting)]
    advices = [advice for _, each in groups if (advice := advise(each)) is not None]
    blocks: list[Block] = [Quiet(load), Lead([_said(advice) for advice in advices])]
    for setting, each in groups:
        blocks += [Heading(setting), *_group(each)]
    blocks += [Heading("How far to believe it"), Items(CAVEATS)]
    return Document("Settings of the KV pool", blocks)


def _said(advice: Advice) -> str:
    if advice.value == advice.usual:
        return f"{advice.setting}: stay at {advice.usual}; {advice.reason}."
    surely = "surely better" if advice.sure else "better on average, not in every run"
    return f"{advice.setting}: {advice.value} instead of {advice.usual}, {surely}: {advice.reason}."


def _group(results: Sequence[Tried]) -> Iterator[Block]:
    rows = []
    for each in results:
        cells = [shown(name, estimate) if (estimate := each.estimates[name]) else "-" for name in TOLD]
        name = f"{each.value} (in use)" if each.usual else each.value
        rows.append((name, f"{each.blocks:,} x {each.block_size}", *cells))
    yield Table(("value", "pool", *(LABELS[name] for name in TOLD)), rows, numbers=range(1, len(TOLD) + 2))
    if len(results) > 1:
        yield Picture(bars(results), [f"{row[0]:16} {row[2]}" for row in rows])
