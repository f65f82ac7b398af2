"""The commands, each in the module of its name; those that belong together share one: `retry` is in resume.py."""
