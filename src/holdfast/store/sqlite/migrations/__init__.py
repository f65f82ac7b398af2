"""The numbered history of the SQLite schema."""
