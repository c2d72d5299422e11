"""What runs inside engine processes, and the wire types that it shares with the agent.

Installed beside vLLM, it is loaded through the ``vllm.general_plugins`` entry point. It depends on the
standard library and msgspec alone; vLLM and torch are imported lazily.
"""

__version__ = "0.1.0"
