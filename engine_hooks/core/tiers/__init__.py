"""Offload tiers: KV in host memory and on disk, as far as a connector's scheduler side knows of it."""
