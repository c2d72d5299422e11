"""Sources: what the agent reads by itself, beside what engines tell it. One folder or file per source.

Adding one: a file with a :class:`~agent.sources.base.Source`, a line in ``registry.py``, its settings in ``config.py``,
a collector with its metrics, a test.
"""
