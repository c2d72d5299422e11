"""Which settings of the KV pool suit a load: each is tried on vLLM's real block pool, with the same load."""
