from tests.engine.conftest import emptied_database, hold, quick, url

__all__ = ["emptied_database", "hold", "quick", "url"]
