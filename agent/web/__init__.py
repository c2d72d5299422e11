"""The agent's HTTP side, guarded: TLS, who may ask, and how long a connection may say nothing."""
