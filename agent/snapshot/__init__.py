"""What a snapshot of torch's CUDA allocator says: who holds memory, where the gaps are, and what grew."""
