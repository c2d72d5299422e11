"""The labelled corpus: what happens to nodes that serve models, by the figures of public reports, as agent states.

A recipe is a pure function of a random generator; a scenario is a recipe with a seed. Faults and what only looks like
one are made by the same models, which know nothing of the detectors that judge them.
"""
