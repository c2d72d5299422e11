"""Tests of kvtide: unit (no engine), engine (real vLLM classes) and e2e (real servers)."""
