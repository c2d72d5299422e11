"""Benchmarks: one run measures both sides; times are reported as ratios."""
