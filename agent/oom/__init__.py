"""Out of memory: what the messages say, what it comes to, and what would help."""
