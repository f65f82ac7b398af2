from tests.agent.conftest import app, either, either_url, emptied_database, hold
from tests.engine.conftest import clock, still, watch

__all__ = ["app", "clock", "either", "either_url", "emptied_database", "hold", "still", "watch"]
