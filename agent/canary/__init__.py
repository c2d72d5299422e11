"""Is a candidate fit for its next stage of a roll-out? Two sets of series, one answer with its reason."""
