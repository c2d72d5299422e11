"""Live compaction: held blocks move below a line between two steps, and what is above it is taken offline."""
