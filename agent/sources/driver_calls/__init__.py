"""How long the driver's memory calls take, by uprobes."""
