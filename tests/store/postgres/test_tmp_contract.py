import importlib, pkgutil, os
import psycopg, pytest
import holdfast.testing.contract as package
from holdfast.testing.contract.base import ContractBase
from holdfast.store.postgres import PostgresStore
import holdfast.testing.contract
V = os.environ.get("PGV", "16")
for info in pkgutil.iter_modules(package.__path__):
    module = importlib.import_module(f"holdfast.testing.contract.{info.name}")
    for name, cls in vars(module).items():
        if isinstance(cls, type) and issubclass(cls, ContractBase) and cls is not ContractBase and cls.__module__ == module.__name__:
            class _Test(cls):
                leases_on_boot_clock = False
                @pytest.fixture
                def url(self, request):
                    server = request.getfixturevalue(f"postgres{V}")
                    if not hasattr(server, "shared_url"):
                        server.shared_url = server.create_database()
                    with psycopg.connect(server.shared_url, autocommit=True) as c:
                        c.execute("DROP SCHEMA IF EXISTS holdfast CASCADE")
                    return server.shared_url
                @pytest.fixture
                async def store(self, url, clock):
                    async with PostgresStore(url, clock=clock) as store:
                        yield store
                @pytest.fixture
                def another_store(self, url, clock):
                    return lambda: PostgresStore(url, clock=clock)
            _Test.__name__ = _Test.__qualname__ = "Test" + name
            globals()["Test" + name] = _Test
