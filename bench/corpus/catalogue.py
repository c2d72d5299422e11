"""All recipes, and the scenarios of each part."""

from __future__ import annotations

from bench.corpus import (
    blocks,
    cards,
    crowding,
    devices,
    events,
    hosts,
    normal,
    pages,
    pressure,
    processes,
    readings,
    retention,
    served,
    simulated,
    tenants,
    torches,
)
from bench.corpus.scenario import Part, Recipe, Scenario, scenarios_of

FAMILIES = (
    blocks,
    retention,
    pressure,
    tenants,
    crowding,
    pages,
    readings,
    torches,
    processes,
    cards,
    devices,
    hosts,
    events,
)


def recipes() -> tuple[Recipe, ...]:
    """Return all recipes; those of other people's series, of a real engine and of the real scheduler only where these
    are there.
    """
    own = (recipe for family in FAMILIES for recipe in family.RECIPES)
    return (*own, *normal.recipes(), *served.recipes(), *simulated.recipes())


def scenarios(part: Part) -> list[Scenario]:
    """Return the scenarios of ``part``."""
    return [scenario for recipe in recipes() for scenario in scenarios_of(recipe, part)]
