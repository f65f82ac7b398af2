from tests.engine.conftest import clock, emptied_database, hold, quick, still, url, watch

__all__ = ["clock", "emptied_database", "hold", "quick", "still", "url", "watch"]
