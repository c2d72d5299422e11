"""The node agent: sources -> state -> verdicts -> faces."""
