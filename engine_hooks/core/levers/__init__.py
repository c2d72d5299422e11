"""What can be done to an engine core, on its own thread, between two steps. One lever per file."""
