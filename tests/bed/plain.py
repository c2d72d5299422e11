"""What vLLM's own messages say, as plain values that can be compared."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

import msgspec
from vllm.v1.serial_utils import UtilityResult

# Told by the clock, so that no two plays agree on them.
CLOCKED = frozenset({"timestamp", "arrival_time", "iteration_details"})


def plain(value: Any) -> Any:
    """Return ``value`` as plain values that can be compared; sets are sorted, what a clock told is left out.

    Raises ``TypeError`` for what it doesn't know: nothing is left out unseen.
    """
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, int | float | str | bytes | None):
        return value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    elif isinstance(value, msgspec.Struct):
        names = list(value.__struct_fields__)
    elif isinstance(value, UtilityResult):
        names = ["result"]
    else:
        raise TypeError(f"no plain form of {type(value)}")
    return {name: plain(getattr(value, name)) for name in names if name not in CLOCKED}
