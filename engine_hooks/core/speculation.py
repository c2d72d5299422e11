"""Speculative drafts: how many were proposed and kept, who was interrupted with drafts open, and what stayed of it.

Per step the drafts are counted as a whole, and only a reference to the step's own table of drafts is kept: following
each of 256 drafting requests would cost more than all the rest. What state each is in is looked up once a second;
interruptions are events, and counted exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine_hooks.core.drafting import STUCK_SECONDS, DraftState, DraftTable
from engine_hooks.core.observers import Context, UnsupportedError
from engine_hooks.detail import SpeculationRow

MAX_STEPS = 16  # steps in flight


@dataclass(slots=True)
class _Round:
    """A step in flight, with the drafts that it verifies. ``dropped``: requests whose output will be thrown away."""

    output: Any
    drafts: Mapping[str, Sequence[int]]
    dropped: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Held:
    """What a request holds just before it gives its blocks back."""

    blocks: list[Any]
    references: list[int]
    deferred: int


class SpeculationObserver:
    """Fills ``speculation``.

    Residue is measured around the call that gives an interrupted request's blocks back: those whose reference count has
    not fallen. Where vLLM defers that for a step in flight, the request stays ``aborted`` until the deferral is gone,
    and the accounts alone answer for its blocks. With the priority policy, a victim that was already scheduled in the
    same step has lost its drafts without a trace, and is not counted.
    """

    HOOK = "speculation"
    SECTION = "speculation"

    def __init__(self, context: Context) -> None:
        scheduler = context.scheduler
        if getattr(getattr(scheduler, "vllm_config", None), "speculative_config", None) is None:
            raise UnsupportedError("this engine does not speculate")
        if getattr(scheduler, "num_sampled_tokens_per_step", 1) != 1:
            raise UnsupportedError("this model's drafts are not verified one token after the other")
        for name in ("_preempt_request", "_free_request", "_free_blocks"):
            if not hasattr(scheduler, name):
                raise UnsupportedError(f"{type(scheduler).__name__} has no {name}: interruptions are not seen")
        self._scheduler = scheduler
        self._groups = context.view.groups
        self._clock = context.clock
        self._table = DraftTable()
        self._rounds: deque[_Round] = deque(maxlen=MAX_STEPS)
        self._held: _Held | None = None
        self._deferred: dict[str, Any] = {}
        self._drafted = self._accepted = self._verified = 0
        self._interruptions = self._residue = 0
        taps = context.taps
        taps.scheduled.append(self._on_scheduled)
        taps.updated.append(self._on_updated)
        taps.ending.append(self._on_ending)
        taps.releasing.append(self._on_giving_back)
        taps.released.append(self._on_given_back)
        taps.preempting.append(self._on_preempting)
        taps.preempted.append(self._on_preempted)

    def section(self, now: float) -> SpeculationRow:
        """Return the totals, and the state of each request that speculates now."""
        self._look(now)
        return SpeculationRow(
            drafted_tokens_total=self._drafted,
            accepted_tokens_total=self._accepted,
            rounds_total=self._verified,
            interruptions_total=self._interruptions,
            residue_blocks_total=self._residue,
            states=self._table.counts(),
            stuck=self._table.stuck(now),
            stuck_after_seconds=STUCK_SECONDS,
        )

    def _look(self, now: float) -> None:
        """Bring the table up to date: O(running)."""
        table, seen = self._table, set()
        for request in self._scheduler.running:
            key = request.request_id
            if self._open(request):
                table.draft(key, (request.num_tokens, request.num_computed_tokens), now)
            elif table.state(key) is not None:
                table.commit(key, now)
            seen.add(key)
        self._settle_deferred(now)
        for key in table.requests():
            if table.state(key) is not DraftState.ABORTED:
                if key not in seen:
                    table.forget(key)
            elif key not in self._deferred and key not in self._scheduler.requests and not self._blocks(key):
                table.clean(key, now)  # given back by a path that we don't see

    def _open(self, request: Any) -> bool:
        """Whether drafts of this request wait to be verified; under async scheduling, placeholders for them."""
        if request.spec_token_ids:
            return True
        key = request.request_id
        return any(key in entry.drafts and key not in entry.dropped for entry in self._rounds)

    # -- steps ---------------------------------------------------------------------------------------------

    def _on_scheduled(self, output: Any) -> None:
        self._rounds.append(_Round(output, output.scheduled_spec_decode_tokens))

    def _on_updated(self, output: Any, runner_output: Any) -> None:
        if self._deferred:
            self._settle_deferred(self._clock())
        rounds = self._rounds
        if not any(entry.output is output for entry in rounds):
            return
        while (entry := rounds.popleft()).output is not output:
            pass  # steps come back in order: one that was left out will not
        if entry.drafts:
            self._count(entry, runner_output)

    def _count(self, entry: _Round, runner_output: Any) -> None:
        """Count a step's drafts as vLLM does; of the accepted ones those that were kept when the request stopped."""
        drafts, dropped = entry.drafts, entry.dropped
        sampled, indexes = runner_output.sampled_token_ids, runner_output.req_id_to_index
        invalid = getattr(entry.output, "num_invalid_spec_tokens", None) or {}
        if not sampled:
            return
        # Accepted drafts, and one token more; none where nothing was sampled, and then nothing was verified.
        lengths = list(map(len, map(sampled.__getitem__, map(indexes.__getitem__, drafts))))
        if not dropped and not invalid and 0 not in lengths:
            self._verified += len(drafts)
            self._drafted += sum(map(len, drafts.values()))
            self._accepted += sum(lengths) - len(lengths)
            return
        for (key, tokens), length in zip(drafts.items(), lengths, strict=True):
            if length and key not in dropped:
                self._verified += 1
                self._drafted += len(tokens) - invalid.get(key, 0)
                self._accepted += length - 1

    def _drop(self, key: str, flying: Iterable[_Round]) -> None:
        for entry in flying:
            if key in entry.drafts:
                entry.dropped.add(key)

    # -- interruptions -------------------------------------------------------------------------------------

    def _on_ending(self, request: Any) -> None:
        if request.status.name == "FINISHED_ABORTED":
            self._interrupt(request)
            self._drop(request.request_id, self._rounds)
        else:  # by the output of the oldest step, which is being taken in
            self._drop(request.request_id, list(self._rounds)[1:])

    def _on_preempting(self, request: Any) -> None:
        self._interrupt(request)
        self._on_giving_back(request)

    def _on_preempted(self, request: Any) -> None:
        if getattr(request, "drop_stale_output", True):  # otherwise what is in flight is still delivered
            self._drop(request.request_id, self._rounds)
        self._on_given_back(request)

    def _interrupt(self, request: Any) -> None:
        if not self._open(request):
            return
        key, now = request.request_id, self._clock()
        self._interruptions += 1
        self._table.draft(key, None, now)  # it is drafting now, whatever it was when we last looked
        if self._table.state(key) is DraftState.DRAFTING:
            self._table.abort(key, now)

    def _on_giving_back(self, request: Any) -> None:
        self._held = None
        key = request.request_id
        if self._table.state(key) is DraftState.ABORTED:
            blocks = self._blocks(key)
            deferred = len(getattr(self._scheduler, "deferred_frees", ()))
            self._held = _Held(blocks, [block.ref_cnt for block in blocks], deferred)

    def _on_given_back(self, request: Any) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        deferred: Any = getattr(self._scheduler, "deferred_frees", ())
        if len(deferred) > held.deferred:
            self._deferred[request.request_id] = deferred[-1]
            return
        for block, references in zip(held.blocks, held.references, strict=True):
            self._residue += block.ref_cnt >= references
        self._table.clean(request.request_id, self._clock())

    def _settle_deferred(self, now: float) -> None:
        waiting = getattr(self._scheduler, "deferred_frees", ())
        for key, entry in list(self._deferred.items()):
            if not any(entry is other for other in waiting):
                del self._deferred[key]
                self._table.clean(key, now)

    def _blocks(self, key: str) -> list[Any]:
        """The blocks in the request's tables, placeholders aside."""
        return [b for manager in self._groups for b in manager.req_to_blocks.get(key, ()) if not b.is_null]
