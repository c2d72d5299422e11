"""Pure renderings of the state for terminals."""
