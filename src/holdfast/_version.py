"""The version, in the one place where it is written down; the build reads it from here."""

__version__ = "0.1.0.dev0"
