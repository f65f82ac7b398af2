from tests.mcp.conftest import client, emptied_database, era, hold, url

__all__ = ["client", "emptied_database", "era", "hold", "url"]
