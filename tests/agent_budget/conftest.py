from tests.agent.conftest import app, either, either_url, emptied_database, hold

__all__ = ["app", "either", "either_url", "emptied_database", "hold"]
