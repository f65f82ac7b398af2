"""Drivers of the peers. Each runs in the peers' own environment: do not import Holdfast here.

They use each peer as its own documentation advises, with everything durable that it can make durable.

drive_*.py    print one JSON number, as `benchmarks.subject` does
effects_*.py  run errand.py's orders, and print where they are, to be killed there
"""
