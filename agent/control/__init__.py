"""The control socket: what persons may order, beside all that is read."""
