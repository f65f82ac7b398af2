"""Benchmarks, run from a clone: ``make bench``."""
