"""Which store is served, and which one a client is set up for: the same, and the application's where there is one."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from mcp import Client, StdioServerParameters

from holdfast import Holdfast
from holdfast.service.session import opened, service_to_serve
from tests.cli.mcp.support import STARTING, entry, option, printed, write_application
from tests.cli.project.support import clean_environment, contents, holdfast, refusal
from tests.postgres_server import PostgresServer

PASSWORD = "postgresql://ann:hush@db.example/agents"  # noqa: S105


@pytest.mark.parametrize("client", STARTING)
def test_an_application_names_its_own_store(tmp_path: Path, client: str) -> None:
    write_application(tmp_path, "sqlite:///app.db")
    before = contents(tmp_path)
    found = entry(client, printed(tmp_path, "app:hold", "--client", client).stdout)
    assert option(found, "--database-url") == f"sqlite:///{tmp_path}/app.db"
    assert found["args"][:4] == ["-m", "holdfast", "mcp", "app:hold"]
    assert found["env"] == {"PYTHONPATH": str(tmp_path)}
    assert {name: digest for name, digest in contents(tmp_path).items() if "__pycache__" not in name} == before


async def test_it_starts_as_printed_from_anywhere_and_finds_that_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_application(tmp_path, "sqlite:///app.db")
    async with Holdfast(f"sqlite:///{tmp_path}/app.db") as hold:
        await hold.store.get("unknown")
    found = entry("json", printed(tmp_path, "app", "--read-only").stdout)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    environment = clean_environment() | found["env"]
    server = StdioServerParameters(command=found["command"], args=found["args"], env=environment)
    async with Client(server) as client:
        assert not (await client.call_tool("list_tasks", {})).is_error
    assert contents(elsewhere) == {}


@pytest.mark.parametrize("command", ["mcp", "serve"])
def test_a_read_only_server_uses_the_applications_store_too(tmp_path: Path, command: str) -> None:
    write_application(tmp_path, "sqlite:///app.db")
    holdfast(tmp_path, "migrate", check=True)  # a store of the settings, which is another one
    before = contents(tmp_path)
    words = refusal(holdfast(tmp_path, command, "app:hold", "--read-only", HOLDFAST_SERVE_PORT="0"), 1)
    assert "there is no store at sqlite:///app.db" in words
    assert {name: digest for name, digest in contents(tmp_path).items() if "__pycache__" not in name} == before


async def test_what_only_reads_keeps_the_tasks_of_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_application(tmp_path, f"sqlite:///{tmp_path}/app.db")
    (tmp_path / "app.py").rename(tmp_path / "app_that_reads.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    service = service_to_serve("app_that_reads", None)
    async with opened(service, read_only=False):
        pass
    async with opened(service, read_only=True) as served:
        assert set(served.definitions.names) == {"greet"}
        assert served.url == f"sqlite:///{tmp_path}/app.db"


async def test_a_reader_sets_no_database_up(
    tmp_path: Path, postgres18: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres18.create_database()
    write_application(tmp_path, url, ', schema="of_its_own"')
    monkeypatch.chdir(tmp_path)
    words = refusal(holdfast(tmp_path, "mcp", "app:hold", "--read-only"), 1)
    assert "of_its_own" in words
    async with await psycopg.AsyncConnection.connect(url) as connection:
        rows = await connection.execute("SELECT nspname FROM pg_namespace WHERE nspname IN ('of_its_own', 'holdfast')")
        assert await rows.fetchall() == []


def test_a_flag_goes_before_the_application(tmp_path: Path) -> None:
    write_application(tmp_path, "sqlite:///app.db")
    found = entry("json", printed(tmp_path, "app:hold", "--database-url", "json:///other").stdout)
    assert option(found, "--database-url") == f"json:///{tmp_path}/other"


def test_the_application_of_the_settings_is_asked_too(tmp_path: Path) -> None:
    write_application(tmp_path, "sqlite:///app.db")
    (tmp_path / "holdfast.toml").write_text('application = "app:hold"\ndatabase_url = "sqlite:///other.db"\n')
    found = entry("json", printed(tmp_path).stdout)
    assert "app:hold" in found["args"]
    assert option(found, "--database-url") == f"sqlite:///{tmp_path}/app.db"


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "100% done? #1 'é'"
    folder.mkdir()
    found = entry("json", printed(folder).stdout)
    url = option(found, "--database-url")
    assert url is not None
    holdfast(tmp_path, "migrate", check=True, HOLDFAST_DATABASE_URL=url)
    assert (folder / "holdfast.db").is_file()


@pytest.mark.parametrize("arguments", [["--print-config"], [], ["--read-only"]])
def test_a_store_that_ends_with_its_process_is_refused(tmp_path: Path, arguments: list[str]) -> None:
    words = refusal(holdfast(tmp_path, "mcp", *arguments, "--database-url", "memory://"), 2)
    assert "lives inside this process and ends with it; name a store that lasts" in words


# Passwords


@pytest.mark.parametrize("client", STARTING)
def test_a_password_is_left_to_be_filled_in(tmp_path: Path, client: str) -> None:
    for arguments, settings in ((["--database-url", PASSWORD], {}), ([], {"HOLDFAST_DATABASE_URL": PASSWORD})):
        answer = printed(tmp_path, "--client", client, *arguments, settings=settings)
        assert "hush" not in answer.stdout + answer.stderr
        found = entry(client, answer.stdout)
        assert found["env"] == {"HOLDFAST_DATABASE_URL": "postgresql://ann:***@db.example/agents"}
        assert "--database-url" not in found["args"]
        assert answer.stderr == "holdfast: put the password where *** stands; none is printed\n"


def test_an_application_that_names_its_store_has_the_password(tmp_path: Path) -> None:
    write_application(tmp_path, PASSWORD)
    answer = printed(tmp_path, "app:hold")
    found = entry("json", answer.stdout)
    assert found["args"] == ["-m", "holdfast", "mcp", "app:hold"]
    assert found["env"] == {"PYTHONPATH": str(tmp_path)}
    assert answer.stderr == ""


def test_an_application_that_goes_by_the_settings_needs_them(tmp_path: Path) -> None:
    write_application(tmp_path, None)
    answer = printed(tmp_path, "app:hold", settings={"HOLDFAST_DATABASE_URL": PASSWORD})
    assert entry("json", answer.stdout)["env"]["HOLDFAST_DATABASE_URL"] == "postgresql://ann:***@db.example/agents"
    assert "put the password where *** stands" in answer.stderr


def test_another_store_than_the_applications_with_a_password_is_an_argument(tmp_path: Path) -> None:
    """The variable would not do: an application that names a store does not read it."""
    write_application(tmp_path, "sqlite:///app.db")
    answer = printed(tmp_path, "app:hold", "--database-url", PASSWORD)
    assert option(entry("json", answer.stdout), "--database-url") == "postgresql://ann:***@db.example/agents"
    assert "put the password where *** stands" in answer.stderr


def test_the_schema_of_the_settings_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('schema = "agents"\ndatabase_url = "postgresql://db.example/agents"\n')
    found = entry("json", printed(tmp_path).stdout)
    assert found["env"] == {"HOLDFAST_SCHEMA": "agents"}
