"""Canaries in every credential: no table, log record, command or MCP answer has one of them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from mcp import Client
from psycopg import sql

from holdfast import Agent, Conflict, Handle, Holdfast, InvalidURL, TaskFailed
from holdfast.agent.openai_model import OpenAIModel
from holdfast.effects import http_request
from holdfast.mcp import tools
from holdfast.mcp.server import McpServer
from holdfast.redaction import without_password
from holdfast.service.access import READ_ONLY, Caller
from holdfast.service.service import Service
from holdfast.store.url import make_store
from holdfast.web.tokens import read_tokens
from tests.commands import invoke
from tests.forked import run_holdfast
from tests.redaction import echo
from tests.redaction.carriers import EVERY, ONCE, PATIENCE, SECRETS, define, leaks


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_API_KEY", SECRETS["environment_key"])
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


async def live(hold: Holdfast, host: str) -> dict[str, Handle[Any]]:
    """Let everything happen, with a credential in what people say."""
    tasks = define(hold, host)
    async with hold.worker(concurrency=30):
        handles = {name: await hold.submit(*what) for name, what in tasks.items()}
        await _decide(hold, handles)
        for name, handle in handles.items():
            assert not leaks(_chain(await _error_of(handle.result(timeout=PATIENCE)))), name
    await hold.memory.store("a", "b", 1, source="x")
    await hold.schedule("later", "echo", cron="0 3 1 1 *", queue="elsewhere")
    for subject in ("queue:elsewhere", "task:elsewhere", "schedule:later"):
        paused = await hold.pause(subject, by="me", reason=EVERY)
        assert paused.reason
    return handles


async def _error_of(result: Awaitable[Any]) -> Exception | None:
    try:
        await result
    except Exception as error:  # noqa: BLE001 - most fail, as they should
        return error
    return None


async def _decide(hold: Holdfast, handles: dict[str, Handle[Any]]) -> None:
    async with asyncio.timeout(PATIENCE):
        await hold.cancel(handles["waits"], EVERY, by="me")
        while not all([(await handle.task()).state.is_terminal for handle in handles.values()]):
            for asked in await hold.approvals(handles["asks"]):
                await hold.reject(asked.id, by="me", note=EVERY)
            for doubt in await hold.doubts():
                with suppress(Conflict):  # it is being cleared up
                    await hold.resolve(doubt, "abandon", by="me", note=EVERY)
            await asyncio.sleep(0.05)


def rows_of(url: str) -> Iterator[tuple[str, str]]:
    """Yield every row of every table, or every file, as text."""
    if url.startswith("json"):
        for file in Path(url.removeprefix("json:///")).rglob("*"):
            if file.is_file():
                yield file.name, file.read_bytes().decode(errors="replace")
        return
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        for (table,) in list(connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")):
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield table, str(row)
        connection.close()
        return
    with psycopg.connect(url) as database:
        tables = database.execute(
            "SELECT table_schema, table_name FROM information_schema.tables"
            " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        assert tables
        for schema, table in tables:
            rows = database.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table)))
            for row in rows:
                yield table, str(row)


def commands(handles: dict[str, Handle[Any]]) -> Iterator[list[str]]:
    for words in (
        *(["list"], ["approvals", "--all"], ["doubts"], ["queues"], ["workers"], ["doctor"], ["config"]),
        *(["memory", "export"], ["memory", "search", "a"]),
    ):
        yield words
        if words[-1] != "export":  # which is JSON
            yield [*words, "--json"]
    yield ["mcp", "--print-config"]
    for handle in handles.values():
        yield ["show", handle.id, "--json"]
    for name in ("careless", "model call", "mcp-stdio"):
        for words in (
            ["steps", "--json"],
            ["history"],
            ["history", "--json"],
            ["budget"],
            ["show"],
            ["steps", "--all"],
        ):
            yield [words[0], handles[name].id, *words[1:]]
    for words in (["state"], ["state", "--json"], ["state", "--history"], ["diff", "1"]):
        yield [words[0], handles["model call"].id, *words[1:]]


async def over_mcp(hold: Holdfast, handles: dict[str, Handle[Any]]) -> list[str]:
    """Return what can be read."""
    async with Client(McpServer(Service(hold), caller=Caller("reader", READ_ONLY)).protocol) as client:
        said = [str(await client.list_tools()), str(await client.list_resources())]
        for name, given in (
            ("list_tasks", {}),
            *(("read_resource", {"uri": one}) for one in ("task://queue", "task://current", "fact://a")),
        ):
            said += [str(await client.call_tool(name, given))]
        for handle in handles.values():
            found = await client.call_tool("get_task", {"task_id": handle.id})
            assert found.structured_content is not None
            uri = found.structured_content["uri"]
            said += [str(found), str(await client.read_resource(uri)), str(await client.read_resource(f"{uri}/steps"))]
        careless = handles["careless"].id
        said.append(str(await client.call_tool("wait_for_task", {"task_id": careless, "timeout_seconds": 0})))
    return said


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("backend", ["sqlite", "json", "postgresql"])
def test_no_canary_gets_out(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read_tokens({"HOLDFAST_API_TOKEN": SECRETS["api_token"], "HOLDFAST_API_TOKEN_CI": f"read:{SECRETS['named_token']}"})
    url = f"json:///{tmp_path}/agents" if backend == "json" else f"sqlite:///{tmp_path}/agents.db"
    if backend == "postgresql":
        given = request.getfixturevalue("postgres_url")
        url = f"{given}{'&' if '?' in given else '?'}password={SECRETS['database_password']}"
    else:  # it is known from elsewhere
        make_store(f"postgresql://u:{SECRETS['database_password']}@127.0.0.1:1/x")
    caplog.set_level(logging.DEBUG)
    handles, served, states = asyncio.run(_scenario(url))
    assert [name for name, state in states.items() if state == "completed"] == [
        *("answer", "model text", "mcp-stdio", "mcp-fails", "verified")
    ], states
    rows = list(rows_of(url))
    assert len(rows) > (20 if backend == "json" else 100)  # a task is one file
    assert [row for row in rows if leaks(row[1])] == []
    assert sum("***" in text for _, text in rows) > (10 if backend == "json" else 20)
    assert [text for text in served if leaks(text)] == []
    assert [one for one in caplog.records if leaks(f"{one.getMessage()} {vars(one)}")] == []
    assert not leaks(caplog.text)
    if backend != "sqlite":
        return  # the commands read the same from all
    for words in commands(handles):
        answer = invoke(words, env={"HOLDFAST_DATABASE_URL": url})
        assert answer.exit_code == 0, (words, answer.output)
        assert not leaks(answer.stdout + answer.stderr), words


async def _scenario(url: str) -> tuple[dict[str, Handle[Any]], list[str], dict[str, str]]:
    with echo.serving() as host, pytest.MonkeyPatch.context() as patched:
        patched.setenv("HTTP_PROXY", f"http://user:{SECRETS['proxy_password']}@{host}")
        async with Holdfast(url) as hold:
            handles = await live(hold, host)
            states = {name: (await handle.task()).state.value for name, handle in handles.items()}
            return handles, await over_mcp(hold, handles), states


MISTYPED = (
    *("postgresql://u:{}@127.0.0.1:1/db", "host=127.0.0.1 port=1 user=u password={} dbname=x", "u:{}@127.0.0.1/db"),
    *("mysql://u:{}@h/db", "postgresql+psycopg://u:{}@127.0.0.1:1/db", "postgres//u:{}@127.0.0.1/db"),
    *("postgresql:/u:{}@127.0.0.1:1/db", "sqlite://u:{}@h/x.db", "sqlite:///x.db?password={}"),
    *("postgresql://127.0.0.1:1/db?password={}", "postgresql://127.0.0.1:1/db?sslpassword={}&passfile=/x"),
    *("postgresql://u:pa{}#x@127.0.0.1:1/db", "postgresql://u:{}@[::1/db"),
    *("jdbc:postgresql://127.0.0.1:1/db?user=u&password={}", " postgresql://u:{}@127.0.0.1:1/db"),
    *("postgresql://u:{}%40@127.0.0.1:1/db", "postgresql://127.0.0.1:1/db?options=-c%20x%3D{}"),
    *("postgresql://u:{}", "postgresql:///u:{}@h/db", "sqlite:///u:{}@h/x.db", "postgresql:u:{}@h/db", "mysql://u:{}"),
)


def test_no_command_shows_the_password_of_a_mistyped_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for secret in ("hunter2CANARY", "pwCANRY"):  # the latter is too short to be known by its value
        for number, form in enumerate(MISTYPED):
            url = form.format(secret)
            said = without_password(url)
            try:
                make_store(url)
            except InvalidURL as error:
                said += _chain(error)
            assert secret not in said, (url, said)
            every = [["config", "--json"], ["list"], ["doctor"], ["mcp", "--print-config"]]
            for words in every if number < 3 else every[: len(secret) > 8]:
                answer = invoke(words, env={"HOLDFAST_DATABASE_URL": url})
                shown = answer.stdout + answer.stderr + _chain(answer.exception)
                assert secret not in shown, (url, words, shown)


def _chain(error: BaseException | None) -> str:
    """Return all that a traceback would show of an error."""
    said = ""
    while error is not None:
        said += f" {error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return said


def test_a_process_says_nothing_of_it_on_stderr(tmp_path: Path) -> None:
    """Neither with --debug, nor where a word is out of place, nor of a variable that cannot be meant."""
    secret = SECRETS["database_password"]
    url = f"postgresql://u:{secret}@127.0.0.1:1/db"
    (tmp_path / "holdfast.toml").write_text(f'listen_url = ["{url}"]\n', encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    far = url.replace("127.0.0.1", "a-long-name-of-a-host.in-a-long-name-of-a-domain.example")
    for words, code in (
        (["list", "--debug", "--database-url", url], 1),
        (["list", f"--{'x' * 40}", far], 2),
        (["list", "x" * 40 + far], 2),
        ([f"{'x' * 40}://u:{secret}@{'x' * 40}"], 2),
    ):
        answer = run_holdfast(*words, folder=tmp_path, environment=kept, timeout=PATIENCE)
        assert answer.returncode == code, answer
        assert answer.stderr
        # A frame around a message breaks words that are longer than a line.
        shown = "".join(filter(str.isalnum, answer.stdout + answer.stderr))
        assert "".join(filter(str.isalnum, secret)) not in shown, (words, answer.stderr)


async def test_a_mistyped_address_of_an_endpoint_is_not_repeated() -> None:
    secret = "pw:CANARY/x"  # noqa: S105
    for url in (f"htp://u:{secret}@h/v1", f"http://u:{secret}@h:p/v1", f"u:{secret}@h", f"http://[::{secret}"):
        for make in (partial(http_request, "POST"), tools):
            try:
                said = repr(make(url))
            except Exception as error:  # noqa: BLE001 - whatever it is
                said = _chain(error)
            assert "CANARY" not in said, url
        model = OpenAIModel("m", base_url=url, api_key="k" * 20)
        hold = Holdfast("memory://")
        agent = hold.register(Agent("a", model=model, builtins=False, retry=ONCE, model_retry=ONCE))
        async with hold, hold.worker():
            handle = await hold.submit(agent, "x")
            with pytest.raises(TaskFailed) as failed:
                await handle.result(timeout=PATIENCE)
            assert "CANARY" not in str((await handle.task()).error) + _chain(failed.value), url
