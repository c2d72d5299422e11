"""``kvtide top``: a live view of a node in a terminal, of an agent or of a recorded bundle (docs/top.md)."""
