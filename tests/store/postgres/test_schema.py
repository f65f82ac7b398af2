"""Setting up, upgrading, refusing; rights; and the rules that the schema shares with the model."""

import asyncio
import itertools
import json

import psycopg
import pytest
from psycopg import conninfo

from holdfast.model.commit import effect_move_refused
from holdfast.model.effect import EffectState
from holdfast.model.errors import SchemaMismatch, StoreError
from holdfast.model.task import FLAT_KEYS, NewTask
from holdfast.model.transitions import TERMINAL, TaskState, is_legal
from holdfast.model.worker import ALONE_AFTER, POISON_AFTER, Claim
from holdfast.store.postgres import PostgresStore, grant_work
from holdfast.store.postgres.migration import _migrate
from holdfast.store.sqlfiles import Migration, migrations
from tests.postgres_server import PostgresServer
from tests.store.postgres.support import COMPLETE, claimed, execute, held, step

KNOWN = migrations("holdfast.store.postgres.migrations")
LAST = KNOWN[-1].version


@pytest.fixture
def url(bare_url: str) -> str:
    """A database in which nothing is set up yet."""
    return bare_url


async def set_up(url: str, known: list[Migration]) -> None:
    """Give the database the schema that these migrations make."""
    async with await psycopg.AsyncConnection.connect(
        url, autocommit=True, cursor_factory=psycopg.AsyncRawCursor
    ) as connection:
        await _migrate(connection, "holdfast", known, "here")


async def test_an_empty_database_is_set_up_once(url: str) -> None:
    async with PostgresStore(url):
        pass
    before = execute(url, "SELECT version, applied_at FROM holdfast.migrations ORDER BY version")
    assert [version for version, _ in before] == [migration.version for migration in KNOWN]
    async with PostgresStore(url, migrate=True):
        pass
    assert execute(url, "SELECT version, applied_at FROM holdfast.migrations ORDER BY version") == before


async def test_many_may_set_it_up_at_once(url: str) -> None:
    stores = [PostgresStore(url) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.close() for store in stores))


async def test_an_empty_database_is_left_alone_when_asked(url: str) -> None:
    with pytest.raises(SchemaMismatch, match="holdfast migrate"):
        await PostgresStore(url, migrate=False).open()
    assert execute(url, "SELECT FROM pg_namespace WHERE nspname = 'holdfast'") == []


async def test_two_stores_live_in_one_database(url: str) -> None:
    async with PostgresStore(url) as one, PostgresStore(url, schema="other_one") as other:
        await one.submit([NewTask(name="job", id="a")])
        assert await other.get("a") is None


async def test_an_older_schema_is_upgraded_only_on_request(url: str) -> None:
    await set_up(url, KNOWN[:-1])
    with pytest.raises(SchemaMismatch, match="holdfast migrate"):
        await PostgresStore(url).open()
    async with PostgresStore(url, migrate=True):
        pass
    async with PostgresStore(url):
        pass


@pytest.mark.parametrize("migrate", [None, True, False])
async def test_a_newer_schema_is_refused(url: str, migrate: bool | None) -> None:
    async with PostgresStore(url):
        pass
    execute(url, f"INSERT INTO holdfast.migrations VALUES ({LAST + 1}, 'future', 'x', now())")
    with pytest.raises(SchemaMismatch, match="upgrade holdfast"):
        await PostgresStore(url, migrate=migrate).open()


async def test_a_worker_claims_no_more_after_a_newer_migration(
    url: str, store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on only where the migration says that workers of its version may; what it holds it can always finish."""
    claims = await claimed(store, "a", "b")
    await migrated_further(url, "-- Workers from version {last} on may go on.")
    for _ in range(2):
        await store.heartbeat("worker")
    assert len(await claimed(store, "c", worker_id="second")) == 1
    assert [record.levelname for record in caplog.records if "newer version" in record.getMessage()] == ["WARNING"]

    caplog.clear()
    await migrated_further(url, "-- It says nothing about older workers.")
    for _ in range(2):
        await store.heartbeat("worker")
    with pytest.raises(SchemaMismatch, match=rf"to schema {LAST + 2}; this one knows {LAST}.*restart it"):
        await store.claim(Claim(worker_id="worker", number=2, limit=1, queues=("worker",), names=("job",)))
    assert [record.levelname for record in caplog.records if "newer version" in record.getMessage()] == ["ERROR"]
    verdicts = await store.commit([held(claim, 1, step(), COMPLETE) for claim in claims])
    assert [verdict.state for verdict in verdicts] == [TaskState.COMPLETED] * 2


async def test_a_worker_that_begins_after_a_newer_migration_claims_nothing(url: str, store: PostgresStore) -> None:
    await migrated_further(url, "SELECT 1")
    with pytest.raises(SchemaMismatch, match="restart it"):
        await claimed(store, "a")


async def migrated_further(url: str, sql: str) -> None:
    """Do what `holdfast migrate` of a newer version does."""
    [(last,)] = execute(url, "SELECT max(version) FROM holdfast.migrations")
    added = [Migration(number, "future", sql.format(last=LAST)) for number in range(LAST + 1, last + 2)]
    execute(url, f"DELETE FROM holdfast.migrations WHERE version > {LAST}")  # its checksum is that of another file
    await set_up(url, [*KNOWN, *added])


async def test_a_changed_migration_is_refused(url: str) -> None:
    async with PostgresStore(url):
        pass
    execute(url, "UPDATE holdfast.migrations SET checksum = 'other' WHERE version = 1")
    with pytest.raises(SchemaMismatch, match="migration 1"):
        await PostgresStore(url, migrate=True).open()


async def test_a_migration_that_fails_leaves_nothing(url: str) -> None:
    execute(url, "CREATE SCHEMA holdfast", "CREATE TABLE holdfast.workers (id text)")
    with pytest.raises(StoreError):
        await PostgresStore(url).open()
    assert execute(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'") == [("workers",)]


async def test_one_role_owns_and_another_works(server: PostgresServer, url: str) -> None:
    """Neither is a superuser. The worker's role can do everything but change a table."""
    dbname = str(conninfo.conninfo_to_dict(url)["dbname"])
    owner, worker = f"owner_{dbname}", f"worker_{dbname}"
    for role in (owner, worker):
        execute(url, f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    execute(url, f"GRANT CREATE ON DATABASE {dbname} TO {owner}")
    as_owner, as_worker = (conninfo.make_conninfo(url, user=role, password="secret") for role in (owner, worker))  # noqa: S106
    try:
        with pytest.raises(SchemaMismatch, match="holdfast migrate"):
            await PostgresStore(as_worker).open()
        async with PostgresStore(as_owner):
            pass
        with pytest.raises(StoreError, match="grant"):
            await PostgresStore(as_worker).open()
        await grant_work(as_owner, worker)
        async with PostgresStore(as_worker) as store:
            [claim] = await claimed(store, "a")
            await store.commit([held(claim, 1, step())])
            verdicts = await store.commit([held(claim, 2, step(), COMPLETE)])
            assert verdicts[0].applied
            await store.emit("news", 1)
            await store.sweep()
            await store.put_artifact(b"bytes")
        for forbidden in ("DROP TABLE holdfast.steps", "DELETE FROM holdfast.migrations", "CREATE TABLE holdfast.x ()"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                execute(as_worker, forbidden)
    finally:
        for role in (owner, worker):
            execute(url, f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")
    assert server.running


async def test_the_moves_are_those_of_the_model(url: str, store: PostgresStore) -> None:
    assert store.capabilities.multi_machine
    for source, target in itertools.product(TaskState, TaskState):
        [(legal,)] = execute(url, f"SELECT holdfast.is_legal_move('{source}', '{target}')")
        assert legal == is_legal(source, target, by_parent=True), (source, target)
    assert set(
        execute(
            url,
            "SELECT s FROM unnest(ARRAY['pending', 'running', 'waiting', 'review', 'completed', "
            "'failed', 'cancelled']) AS s WHERE holdfast.is_terminal(s)",
        )
    ) == {(s,) for s in TERMINAL}


async def test_the_moves_of_effects_are_those_of_the_model(url: str, store: PostgresStore) -> None:
    assert store.capabilities.durable
    for source, target, fenced in itertools.product((None, *EffectState), EffectState, (True, False)):
        quoted = "NULL" if source is None else f"'{source}'"
        [(legal,)] = execute(url, f"SELECT holdfast.is_legal_effect_move({quoted}, '{target}', {fenced})")
        assert legal != effect_move_refused(source, target, fenced=fenced), (source, target, fenced)


async def test_the_numbers_are_those_of_the_model(url: str, store: PostgresStore) -> None:
    assert store.capabilities.durable
    [(before, after)] = execute(
        url,
        f"SELECT holdfast.readiness('review', NULL, now(), {ALONE_AFTER - 1}, now()), "
        f"holdfast.readiness('review', NULL, now(), {ALONE_AFTER}, now())",
    )
    assert (before, after) == (1, 2)
    [(recover,)] = execute(url, "SELECT prosrc FROM pg_proc WHERE proname = 'recover'")
    assert f"t.lone_deaths + 1 >= {POISON_AFTER}" in recover


CATALOG = """
    SELECT 'column', table_name, column_name, data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '')
    FROM information_schema.columns WHERE table_schema = 'holdfast'
    UNION ALL SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'holdfast'
    UNION ALL SELECT 'constraint', c.conrelid::regclass::text, c.conname, pg_get_constraintdef(c.oid)
    FROM pg_constraint c WHERE c.connamespace = 'holdfast'::regnamespace
    UNION ALL SELECT 'function', p.proname, pg_get_function_identity_arguments(p.oid), pg_get_functiondef(p.oid)
    FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace
    ORDER BY 1, 2, 3, 4
"""


async def test_fresh_schema_equals_migrated_schema(server: PostgresServer, url: str) -> None:
    """One by one, as an old database meets them, the migrations make the schema that an empty one gets at once."""
    async with PostgresStore(url):
        pass
    stepwise = server.create_database()
    for count in range(1, len(KNOWN) + 1):
        await set_up(stepwise, KNOWN[:count])
    fresh = execute(url, CATALOG)
    assert len(fresh) > 200
    assert execute(stepwise, CATALOG) == fresh
    server.drop_database(stepwise)


async def test_what_was_begun_before_scoped_keys_stays_flat(url: str) -> None:
    """Begun by a claim, or by a line of its journal. A process of the version before goes on, and claims flat."""
    known = migrations("holdfast.store.postgres.migrations")
    kinship = next(step.version for step in known if step.name == "kinship")
    await set_up(url, [step for step in known if step.version < kinship])
    submitted = "SELECT holdfast.submit(%s, ARRAY['1']::bytea[], false)"
    tasks = [
        {"n": n, "id": name, "name": "job", "agent_id": "a", "state": "pending", "queue": name, "priority": 0}
        | {"actor": "a", "input": 1, "input_digest": "", "search": "", "round": 1}
        for n, name in enumerate(("claimed", "fresh", "saved"))
    ]
    claim = "SELECT id FROM holdfast.claim('w', {}, 9, ARRAY['{}'], ARRAY['job'], false, NULL)"
    with psycopg.connect(url, autocommit=True) as old:
        old.execute(submitted, (json.dumps(tasks),))
        old.execute("SELECT FROM holdfast.register('w', 'w', 3600, ''::bytea)")
        assert old.execute(claim.format(1, "claimed").encode()).fetchall() == [("claimed",)]
        old.execute("INSERT INTO holdfast.steps VALUES ('saved', 1, 'k', 'step', 1, 'completed', 1, 0, '')")
        for _ in range(2):  # prepared, as clients do
            old.execute("SELECT * FROM holdfast.task_records", prepare=True)
        async with PostgresStore(url, migrate=True) as store:
            forms = {task.id: task.key_form for task in (await store.find()).items}
            assert forms == {"claimed": FLAT_KEYS, "fresh": 0, "saved": FLAT_KEYS}
            await claimed(store, "scoped", worker_id="new")
            await store.retire("new")
            assert len(old.execute("SELECT * FROM holdfast.task_records", prepare=True).fetchall()) == 4
            assert old.execute(claim.format(2, "new").encode()).fetchall() == []
            assert old.execute(claim.format(2, "fresh").encode()).fetchall() == [("fresh",)]
            fresh = await store.get("fresh")
            assert fresh is not None
            assert fresh.key_form == FLAT_KEYS
