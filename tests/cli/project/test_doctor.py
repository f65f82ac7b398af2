"""``holdfast doctor``, in real processes: what it finds, and that it changes nothing."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from holdfast import Handle, Holdfast, ManualClock
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.sqlite.connection import APPLICATION_ID
from tests.cli.project.support import contents, holdfast
from tests.postgres_server import PostgresServer

APPLICATION = """
from holdfast import Context, Holdfast

hold = Holdfast({url})

@hold.task
async def work(ctx: Context) -> None: ...
"""


def doctor(folder: Path, *options: str, code: int = 0, **environment: str) -> dict[str, list[dict[str, Any]]]:
    """Return the findings by their check."""
    answer = holdfast(folder, "doctor", "--json", *options, check=False, **environment)
    assert answer.returncode == code, (answer.stdout, answer.stderr)
    document = json.loads(answer.stdout)
    levels = [finding["level"] for finding in document["findings"]]
    assert document["worst"] == max(levels, key=["ok", "note", "warning", "error"].index)
    assert (document["worst"] == "error") == bool(code)
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in document["findings"]:
        assert set(finding) == {"check", "level", "words", "remedy"}
        assert (finding["level"] == "ok") == (finding["remedy"] is None)
        found.setdefault(finding["check"], []).append(finding)
    return found


def level(found: dict[str, list[dict[str, Any]]], check: str) -> str:
    (finding,) = found[check]
    return str(finding["level"])


async def make_store(url: str) -> None:
    async with Holdfast(url) as hold:
        await hold.submit("work", queue="default")


def older_store(path: Path) -> None:
    """Write a file that was set up by a version before the first schema of this one."""
    connection = apsw.Connection(str(path))
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT, checksum TEXT)")
    connection.close()


async def test_a_store_that_is_well(tmp_path: Path) -> None:
    async with Holdfast(f"sqlite:///{tmp_path}/holdfast.db"):
        pass
    found = doctor(tmp_path, "--thorough")
    assert {
        check: level(found, check) for check in ("store", "schema", "durability", "queues", "growth", "machine")
    } == (dict.fromkeys(("store", "schema", "durability", "queues", "growth", "machine"), "ok"))
    answer = holdfast(tmp_path, "doctor", check=True)
    assert "✓ store: sqlite:///holdfast.db answers: SQLite 3." in answer.stdout
    assert answer.stdout.splitlines()[-1].startswith("all is well")
    assert answer.stderr == ""


async def test_a_store_in_use_is_read_from_its_wal(tmp_path: Path) -> None:
    async with Holdfast(f"sqlite:///{tmp_path}/holdfast.db"):
        assert (tmp_path / "holdfast.db-wal").stat().st_size  # where its schema still stands
        assert level(doctor(tmp_path), "schema") == "ok"


def test_a_store_that_is_missing_is_not_made(tmp_path: Path) -> None:
    for url in ("sqlite:///holdfast.db", "json:///data"):
        found = doctor(tmp_path, "--database-url", url, code=1)
        assert "there is no store" in found["store"][0]["words"]
        assert "holdfast migrate" in found["store"][0]["remedy"]
        assert contents(tmp_path) == {}
    answer = holdfast(tmp_path, "doctor")
    assert answer.returncode == 1
    assert answer.stdout.startswith("✗ store: there is no store at sqlite:///holdfast.db")
    assert answer.stdout.splitlines()[-1].startswith("1 error")


def test_an_older_schema_is_left_as_it_is(tmp_path: Path) -> None:
    older_store(tmp_path / "holdfast.db")
    before = contents(tmp_path)
    found = doctor(tmp_path, "--thorough", code=1)
    assert level(found, "schema") == "error"
    assert found["schema"][0]["remedy"].endswith("holdfast migrate --database-url sqlite:///holdfast.db")
    assert contents(tmp_path) == before
    holdfast(tmp_path, "migrate", check=True)  # what the remedy says helps
    assert contents(tmp_path) != before
    assert level(doctor(tmp_path), "schema") == "ok"


def test_an_older_schema_that_stands_in_the_wal_is_left_there(tmp_path: Path) -> None:
    """The dead process left the newest pages in the WAL; a first opening would put them into the file."""
    living = tmp_path / "living"
    living.mkdir()
    connection = apsw.Connection(str(living / "holdfast.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("application_id", APPLICATION_ID)
    connection.execute("CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT, checksum TEXT)")
    for name in ("holdfast.db", "holdfast.db-wal"):
        (tmp_path / name).write_bytes((living / name).read_bytes())
    connection.close()
    before = contents(tmp_path)
    assert level(doctor(tmp_path, code=1), "schema") == "error"
    after = contents(tmp_path)
    after.pop("holdfast.db-shm", None)  # an index of the WAL that readers share, and rebuild
    assert after == before


def test_a_newer_schema(tmp_path: Path) -> None:
    older_store(tmp_path / "holdfast.db")
    connection = apsw.Connection(str(tmp_path / "holdfast.db"))
    connection.execute("INSERT INTO migrations VALUES (99, 'future', 'x')")
    connection.close()
    before = contents(tmp_path)
    assert "pip install --upgrade holdfast" in doctor(tmp_path, code=1)["schema"][0]["remedy"]
    assert contents(tmp_path) == before


async def test_a_journal_that_another_program_changed_is_left_as_it_is(tmp_path: Path) -> None:
    await make_store(f"sqlite:///{tmp_path}/holdfast.db")
    connection = apsw.Connection(str(tmp_path / "holdfast.db"))
    assert connection.pragma("journal_mode", "delete") == "delete"
    connection.close()
    before = contents(tmp_path)
    assert level(doctor(tmp_path), "durability") == "warning"
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"no database at all, but long enough to be read as the header of one\n" * 20, "is not a SQLite database"),
        (None, "is the SQLite database of another program"),
        (b"", "nothing in it yet"),
    ],
)
def test_files_that_are_not_a_store(body: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    if body is None:
        connection = apsw.Connection(str(path))
        connection.execute("CREATE TABLE theirs (a)")
        connection.close()
    else:
        path.write_bytes(body)
    before = contents(tmp_path)
    found = doctor(tmp_path, code=1)
    assert words in (found.get("store") or found["schema"])[0]["words"]
    assert contents(tmp_path) == before


def test_folders_that_are_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert "is a directory" in doctor(tmp_path, "--database-url", "sqlite:///data", code=1)["store"][0]["words"]
    assert "holds no store" in doctor(tmp_path, "--database-url", "json:///data", code=1)["store"][0]["words"]
    (tmp_path / "data" / "holdfast.json").write_text("{", encoding="utf-8")
    assert "cannot be read" in doctor(tmp_path, "--database-url", "json:///data", code=1)["store"][0]["words"]


async def test_damage_that_a_thorough_look_finds(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    await make_store(f"sqlite:///{path}")
    connection = apsw.Connection(str(path))
    root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'tasks'").get
    size = connection.pragma("page_size")
    connection.close()
    body = bytearray(path.read_bytes())
    body[(root - 1) * size + 8 : root * size] = b"\xff" * (size - 8)
    path.write_bytes(body)
    found = doctor(tmp_path, "--thorough", code=1)
    assert any("damaged" in finding["words"] for finding in [*found.get("damage", ()), *found.get("store", ())])


async def test_a_json_store(tmp_path: Path) -> None:
    url = f"json:///{tmp_path}/data"
    await make_store(url)
    found = doctor(tmp_path, "--database-url", url)
    assert (level(found, "store"), level(found, "queues")) == ("ok", "warning")
    assert found["store"][0]["words"].endswith("answers: JSON files")  # without a version
    async with Holdfast(url):
        busy = doctor(tmp_path, "--database-url", url)
    assert level(busy, "store") == "warning"
    assert "is open in process" in busy["store"][0]["words"]


@pytest.mark.parametrize(
    "url", ["mysql://anna:sesame@here/one", "sqlite://two-slashes.db", "postgresql://anna:sesame@127.0.0.1:1/x"]
)
def test_urls_that_lead_nowhere(url: str, tmp_path: Path) -> None:
    found = doctor(tmp_path, "--database-url", url, code=1)
    assert level(found, "store") == "error"
    assert "sesame" not in str(found)


async def test_work_without_a_worker(tmp_path: Path) -> None:
    await make_store(f"sqlite:///{tmp_path}/holdfast.db")
    found = doctor(tmp_path)
    assert found["queues"][0]["words"] == "1 task ready in default (1), which no worker serves"
    assert found["queues"][0]["remedy"] == "holdfast worker MODULE:HOLDFAST --queues default"
    assert "workers" not in found


async def test_a_dead_worker_keeps_its_task_until_it_is_taken_back(tmp_path: Path) -> None:
    """The doctor reports it, and does not repair it."""
    url = f"sqlite:///{tmp_path}/holdfast.db"
    async with Holdfast(url) as hold:
        handle: Handle[None] = await hold.submit("work", queue="default")
    async with Holdfast(url, clock=ManualClock(datetime.now(UTC) - timedelta(minutes=2))) as earlier:
        worker = await earlier.store.register(NewWorker(lease=60, details={"queues": ["default"]}))
        (claimed,) = await earlier.store.claim(Claim(worker_id=worker.id, number=1, limit=1, names=["work"]))
        assert claimed.task.id == handle.id
    for _ in range(2):
        found = doctor(tmp_path, code=1)
        assert level(found, "leases") == "error"
        assert "holds 1 task; no other worker is there to take over" in found["leases"][0]["words"]
    async with Holdfast(url) as hold:
        task = await hold.handle(handle.id).task()
        assert (task.state, task.owner, task.fence) == ("running", worker.id, claimed.fence)


async def test_a_failed_task_is_a_note(tmp_path: Path) -> None:
    async with Holdfast(f"sqlite:///{tmp_path}/holdfast.db") as hold:

        @hold.task
        async def work(ctx: Any) -> None:  # noqa: ANN401, ARG001
            raise ValueError("no")

        handle = await hold.submit(work)
        with pytest.raises(Exception, match="no"):
            await hold.run(handle)
        await hold.cancel(await hold.submit(work), "over", by="test")
    found = doctor(tmp_path)
    assert level(found, "failed") == "note"
    assert found["failed"][0]["words"] == "1 task failed within the last day"


async def test_the_application_is_looked_at(tmp_path: Path) -> None:
    await make_store(f"sqlite:///{tmp_path}/holdfast.db")
    (tmp_path / "shop.py").write_text(APPLICATION.format(url=""), encoding="utf-8")
    (tmp_path / "elsewhere.py").write_text(APPLICATION.format(url="'sqlite:///other.db'"), encoding="utf-8")
    (tmp_path / "holdfast.toml").write_text('application = "shop:hold"\n', encoding="utf-8")
    assert level(doctor(tmp_path), "application") == "ok"
    other = doctor(tmp_path, "--app", "elsewhere")
    assert level(other, "application") == "warning"
    assert "sqlite:///other.db" in other["application"][0]["words"]
    assert not (tmp_path / "other.db").exists()
    missing = doctor(tmp_path, "--app", "nowhere:hold", code=1)
    assert "there is no module 'nowhere'" in missing["application"][0]["words"]


async def test_the_store_is_that_of_the_application_that_the_settings_name(tmp_path: Path) -> None:
    """And so it is for commands that show tasks: `run` and `worker` use that one."""
    await make_store(f"sqlite:///{tmp_path}/holdfast.db")
    (tmp_path / "shop.py").write_text(APPLICATION.format(url="'sqlite:///other.db'"), encoding="utf-8")
    (tmp_path / "holdfast.toml").write_text('application = "shop:hold"\n', encoding="utf-8")
    ran = holdfast(tmp_path, "submit", "work")
    assert (ran.returncode, "--database-url" in ran.stderr) == (0, False)
    [task] = json.loads(holdfast(tmp_path, "list", "--json").stdout)["tasks"]
    assert task["id"] == ran.stdout.strip()
    assert json.loads(holdfast(tmp_path, "show", "--json").stdout)["task"]["id"] == task["id"]
    found = doctor(tmp_path)
    assert level(found, "application") == "ok"
    assert "other.db" in found["store"][0]["words"]
    # What is named for this command goes before what the code says, and then the code is not even imported.
    (tmp_path / "shop.py").write_text("1 / 0\n", encoding="utf-8")
    named = "sqlite:///holdfast.db"
    for answer in (
        holdfast(tmp_path, "list", "--json", HOLDFAST_DATABASE_URL=named),
        holdfast(tmp_path, "list", "--json", "--database-url", named),
    ):
        assert task["id"] not in {one["id"] for one in json.loads(answer.stdout)["tasks"]}
    broken = holdfast(tmp_path, "list")
    assert broken.returncode == 1
    assert "ZeroDivisionError" in broken.stderr
    assert "--database-url" in broken.stderr


async def test_the_remedies_say_which_store_they_are_for(tmp_path: Path) -> None:
    async with Holdfast(f"sqlite:///{tmp_path}/elsewhere.db") as hold:
        await hold.submit("work", queue="default")
    there = ("--database-url", f"sqlite:///{tmp_path}/elsewhere.db")
    assert holdfast(tmp_path, "doctor", *there).stderr.endswith(f"add to them: {' '.join(there)}\n")
    assert holdfast(tmp_path, "doctor", HOLDFAST_DATABASE_URL=there[1]).stderr == ""


def test_no_code_is_run_by_surprise(tmp_path: Path) -> None:
    """A holdfast.toml above the working directory, or one that others can write, may name any code."""
    below = tmp_path / "deep" / "down"
    below.mkdir(parents=True)
    (tmp_path / "shop.py").write_text("open('it-ran', 'w')\n" + APPLICATION.format(url=""), encoding="utf-8")
    file = tmp_path / "holdfast.toml"
    file.write_text('application = "shop:hold"\n', encoding="utf-8")
    file.chmod(0o600)
    for folder, mode in ((below, 0o600), (tmp_path, 0o666)):
        file.chmod(mode)
        found = doctor(folder, code=1)  # there is no store, which is an error
        assert level(found, "application") == "note"
        assert found["application"][0]["remedy"] == "if you trust its code: holdfast doctor --app shop:hold"
        assert not (folder / "it-ran").exists()
    doctor(below, "--app", "shop:hold", code=1)
    assert (below / "it-ran").exists()
    file.chmod(0o600)
    doctor(tmp_path, code=1)
    assert (tmp_path / "it-ran").exists()


def test_an_application_that_raises_shows_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("hold = 1 / 0\n", encoding="utf-8")
    answer = holdfast(tmp_path, "doctor", "--app", "broken")
    assert answer.returncode == 1
    assert "✗ application: broken cannot be used: importing broken fails at broken.py:1" in answer.stdout
    assert "ZeroDivisionError: division by zero" in answer.stdout


async def test_settings_that_are_broken_are_a_finding(tmp_path: Path) -> None:
    await make_store(f"sqlite:///{tmp_path}/holdfast.db")
    (tmp_path / "holdfast.toml").write_text("databse_url = 3", encoding="utf-8")
    found = doctor(tmp_path, code=1, HOLDFAST_LEASE="3")
    assert [finding["level"] for finding in found["settings"]] == ["error", "warning"]
    assert "did you mean database_url?" in found["settings"][0]["remedy"]
    assert "HOLDFAST_WORKER_LEASE" in found["settings"][1]["remedy"]


def test_postgresql(postgres18: PostgresServer, tmp_path: Path) -> None:
    url = postgres18.create_database()
    try:
        empty = doctor(tmp_path, "--database-url", url, code=1)
        assert level(empty, "schema") == "error"
        assert "`holdfast migrate`" in empty["schema"][0]["remedy"]
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'holdfast'").fetchall()
        assert found == []  # nothing was set up
        holdfast(tmp_path, "migrate", "--database-url", url, check=True)
        well = doctor(tmp_path, "--database-url", url, code=int(postgres_is_unsafe(url)))
        assert level(well, "store") == level(well, "schema") == level(well, "clock") == "ok"
        assert ("fsync" in str(well["durability"])) or well["durability"][0]["level"] == "ok"
    finally:
        postgres18.drop_database(url)


def postgres_is_unsafe(url: str) -> bool:
    """Say whether the server of the tests runs without syncs, which the doctor has to notice."""
    with psycopg.connect(url) as connection:
        names = ("fsync", "full_page_writes", "synchronous_commit")
        return any(connection.execute(f"SHOW {name}").fetchone() == ("off",) for name in names)
