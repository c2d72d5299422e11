"""What runs in worker processes: who they are, and the memory that each rank holds."""
