"""How large a request is, in tokens and KV blocks, before it is tokenised."""

from __future__ import annotations

from dataclasses import dataclass

from engine_hooks.frontend.admission.ask import Ask, Prompt

FIRST_RATIO = 0.25  # tokens per byte of text, until this process has seen some
LEAST_RATIO, MOST_RATIO = 0.02, 2.0
LEARNED_FROM_BYTES = 64  # in a shorter text the special tokens count for too much
LEARNING = 0.1  # least weight of one prompt


@dataclass(frozen=True, slots=True)
class Pool:
    """What there is to share out. ``blocks``: of all ranks together, null blocks excluded; ``ranks``: so many pools;
    ``model_tokens``: the longest context.
    """

    block_tokens: int
    blocks: int
    ranks: int
    model_tokens: int

    @property
    def rank_blocks(self) -> int:
        """Blocks that one request can get at most."""
        return self.blocks // self.ranks


class TokenRatio:
    """Tokens per byte of text, learned from what the engine's tokenizer makes of real prompts."""

    def __init__(self) -> None:
        self.value = FIRST_RATIO
        self._seen = 0

    def learn(self, text_bytes: int, tokens: int) -> None:
        """Take in one prompt that has been tokenised."""
        if text_bytes >= LEARNED_FROM_BYTES and tokens > 0:
            seen = min(MOST_RATIO, max(LEAST_RATIO, tokens / text_bytes))
            self._seen += 1
            self.value += max(LEARNING, 1.0 / self._seen) * (seen - self.value)

    def tokens(self, prompt: Prompt) -> int:
        """Return how long ``prompt`` is likely to be."""
        return prompt.tokens + round(prompt.text_bytes * self.value)


@dataclass(frozen=True, slots=True)
class Size:
    """``prompt_tokens`` and ``most_blocks``: of the longest prompt. ``blocks`` and ``requests``: of all its prompts and
    choices together. ``bound``: the max_tokens that the body must be given; None to leave it alone.
    """

    prompt_tokens: int
    blocks: int
    requests: int
    most_blocks: int
    bound: int | None = None


def size_of(ask: Ask, ratio: TokenRatio, pool: Pool, max_tokens: int | None, share: int | None) -> Size:
    """Return the size of ``ask``.

    ``max_tokens``: for a request that says none or zero. ``share``: blocks that one request may have; where the request
    says no length itself, its length is chosen so that it fits.
    """
    lengths = [ratio.tokens(prompt) for prompt in ask.prompts] or [0]
    longest = max(lengths)
    bound = None
    output = ask.max_tokens
    if ask.echo_only:
        output = 1
    elif output is None:
        output, bound = _chosen(ask, longest, pool, max_tokens, share)
    blocks = [-(-min(length + output, pool.model_tokens) // pool.block_tokens) for length in lengths]
    return Size(
        prompt_tokens=longest,
        blocks=sum(blocks) * ask.choices,
        requests=len(lengths) * ask.choices,
        most_blocks=max(blocks),
        bound=bound,
    )


def _chosen(ask: Ask, longest: int, pool: Pool, max_tokens: int | None, share: int | None) -> tuple[int, int | None]:
    """Return the output length of a request that says none, and what its body must say for that, if anything."""
    own = ask.missing if ask.missing is not None else pool.model_tokens
    chosen = own if max_tokens is None else min(own, max_tokens)
    if share is not None and (room := share * pool.block_tokens - longest) >= 1:
        chosen = min(chosen, room)
    return chosen, (chosen if chosen < own and ask.limit else None)
