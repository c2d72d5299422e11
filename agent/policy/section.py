"""What a section of the policy is."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from agent.settings_file import OUT_OF_ORDER


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, text is no number, values do not change.

    ``ascending``: keys whose values must not fall in this order, such as what warns and what pages.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    ascending: ClassVar[tuple[tuple[str, ...], ...]] = ()

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for keys in self.ascending:
            for lower, upper in pairwise(keys):
                low, high = getattr(self, lower), getattr(self, upper)
                if low > high:
                    # A problem of its own, so that the message can name a key that was set, and its value.
                    if lower in self.model_fields_set:
                        told = {"key": lower, "value": low, "side": "above", "other": upper, "bound": high}
                    else:
                        told = {"key": upper, "value": high, "side": "below", "other": lower, "bound": low}
                    raise PydanticCustomError(OUT_OF_ORDER, "must not be {side} {other}, which is {bound}", told)
        return self
