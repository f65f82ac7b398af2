"""The history of the PostgreSQL schema: numbered SQL files, applied in order, never edited once released."""
