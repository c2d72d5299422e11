"""Tests that run in the engine environment, against real vLLM classes."""
