from tests.handover.conftest import ada, bob, clock, emptied_database, hold, living, url

__all__ = ["ada", "bob", "clock", "emptied_database", "hold", "living", "url"]
