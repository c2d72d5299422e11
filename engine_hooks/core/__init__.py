"""What runs on an EngineCore's own thread: reads the scheduler and its block pools, counts, audits and reports."""
