"""What goes wrong, at the places in vLLM where it was reported to: one class per mechanism, on the real classes."""
