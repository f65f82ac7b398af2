from tests.engine.conftest import clock, still, watch

__all__ = ["clock", "still", "watch"]
