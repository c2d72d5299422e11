"""The simulator's half that runs beside vLLM: its real scheduler and block pool, our real hooks, and no GPU.

``python -m engine_hooks.simulator`` reads specs on standard input and writes the hooks' own frames, with virtual times,
and the truth about what was planted, on standard output. ``kvtide simulate`` starts it.
"""
