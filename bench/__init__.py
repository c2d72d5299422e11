"""Benchmarks: one run measures both sides; times are reported as ratios.

One file per benchmark, each with one function ``run(quick)``; ``bench/__main__.py`` lists them.
"""
