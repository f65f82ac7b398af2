"""Drivers of the peers. Each runs in the peers' own environment: nothing of Holdfast may be imported here.

They print one JSON number, as `benchmarks.subject` does, and use each peer as its own documentation advises, with
everything durable that it can make durable.
"""
