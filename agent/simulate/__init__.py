"""Simulated engines: vLLM's real scheduler and our real hooks in virtual time, recorded as an agent would see them."""
