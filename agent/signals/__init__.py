"""Signals: what the raw numbers of a node mean over time. Pure: each is folded from states, time is theirs."""
