"""The test bed: a tiny model, real vLLM engines without a GPU, load, and leaks that can be planted."""
