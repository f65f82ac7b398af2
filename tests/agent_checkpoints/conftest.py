from tests.agent.conftest import app, either, either_url, emptied_database, hold
from tests.engine.conftest import watch

__all__ = ["app", "either", "either_url", "emptied_database", "hold", "watch"]
