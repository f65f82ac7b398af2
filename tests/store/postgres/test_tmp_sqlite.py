import importlib, pkgutil
import pytest
import holdfast.testing.contract as package
from holdfast.testing.contract.base import ContractBase
from holdfast.store.sqlite import SqliteStore
for info in pkgutil.iter_modules(package.__path__):
    module = importlib.import_module(f"holdfast.testing.contract.{info.name}")
    for name, cls in vars(module).items():
        if isinstance(cls, type) and issubclass(cls, ContractBase) and cls is not ContractBase and cls.__module__ == module.__name__:
            class _Test(cls):
                @pytest.fixture
                async def store(self, tmp_path, clock):
                    async with SqliteStore(tmp_path/"a.db", clock=clock) as store:
                        yield store
                @pytest.fixture
                def another_store(self, tmp_path, clock):
                    return lambda: SqliteStore(tmp_path/"a.db", clock=clock)
            _Test.__name__ = _Test.__qualname__ = "Test" + name
            globals()["Test" + name] = _Test
