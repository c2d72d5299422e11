"""Requests with images, and the text-only scheduler of the bed made to schedule them as for a model with an encoder.

No encoder runs: what is cached for whom is decided by vLLM's own scheduler and encoder cache manager.
"""

from __future__ import annotations

from tests.bed.scheduler import make_request

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

IMAGE = 32  # encoder tokens of one image
TEXT = 8  # tokens between and after images


def give_encoder(scheduler: Scheduler, capacity: int, manager: EncoderCacheManager | None = None) -> None:
    """Give the scheduler an encoder cache of ``capacity`` tokens, and as much encoder compute per step."""
    scheduler.encoder_cache_manager = manager or EncoderCacheManager(cache_size=capacity)
    scheduler.max_num_encoder_input_tokens = capacity


def with_images(i: int, *images: str, max_tokens: int = 64, lead: int = TEXT) -> Request:
    """Return request ``r<i>`` with one image per name, ``IMAGE`` tokens each; the same name is the same image.

    ``lead``: tokens of text before the first one.
    """
    request = make_request(i, lead + (IMAGE + TEXT) * len(images), max_tokens)
    request.mm_features = [
        MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier=image,
            mm_position=PlaceholderRange(offset=lead + (IMAGE + TEXT) * n, length=IMAGE),
        )
        for n, image in enumerate(images)
    ]
    return request
