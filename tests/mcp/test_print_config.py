"""``holdfast mcp --print-config``: complete, for each client, and it works as printed."""

from __future__ import annotations

import json
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from holdfast.redaction import without_password
from tests.cli.project.support import clean_environment, holdfast
from tests.mcp.support import ask

SECRET = "postgresql://ann:hush@db.example/holdfast"  # noqa: S105


def printed(folder: Path, *arguments: str, **environment: str) -> str:
    done = holdfast(folder, "mcp", "--print-config", *arguments, check=True, **environment)
    return done.stdout


def entry_of(folder: Path, client: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """Print for a client; return command, args and env as that client would read them."""
    text = printed(folder, "--client", client, *arguments, **environment)
    match client:
        case "json" | "claude-desktop" | "cline" | "cursor" | "windsurf":
            found = json.loads(text)["mcpServers"]["holdfast"]
        case "vscode":
            found = json.loads(text)["servers"]["holdfast"]
            assert found.pop("type") == "stdio"
        case "codex":
            found = tomllib.loads(text)["mcp_servers"]["holdfast"]
        case _:
            words = shlex.split(text)
            assert words[:4] == ["claude", "mcp", "add", "holdfast"]
            split = words.index("--")
            given = dict(pair.split("=", 1) for pair in words[4:split] if pair != "--env")
            found = {"command": words[split + 1], "args": words[split + 2 :]} | ({"env": given} if given else {})
    assert isinstance(found, dict)
    return found


CLIENTS = ["json", "claude-code", "claude-desktop", "cline", "codex", "cursor", "vscode", "windsurf"]
APPLICATION = "from holdfast import Holdfast\n\nhold = Holdfast()\n"


@pytest.mark.parametrize("client", CLIENTS)
def test_every_form_says_the_same(tmp_path: Path, client: str) -> None:
    folder = tmp_path / "with space and 'quote'"
    folder.mkdir()
    found = entry_of(folder, client)
    name = [] if client == "json" else ["--name", client]  # histories tell the clients of one user apart
    assert found == {
        "command": sys.executable,
        "args": ["-m", "holdfast", "mcp", "--database-url", f"sqlite:///{folder}/holdfast.db", *name],
    }
    assert not list(folder.iterdir())  # printing makes no store


@pytest.mark.parametrize("client", CLIENTS)
def test_what_was_given_is_in_it(tmp_path: Path, client: str) -> None:
    (tmp_path / "app.py").write_text(APPLICATION)
    found = entry_of(tmp_path, client, "app:hold", "--read-only", "--claim", "a", "--claim", "b", "--name", "ada")
    arguments = found["args"]
    assert arguments[:4] == ["-m", "holdfast", "mcp", "app:hold"]
    assert "--read-only" in arguments
    assert [arguments[at + 1] for at, word in enumerate(arguments) if word == "--claim"] == ["a", "b"]
    assert arguments[arguments.index("--name") + 1] == "ada"
    assert found["env"] == {"PYTHONPATH": str(tmp_path)}


@pytest.mark.parametrize("client", CLIENTS)
def test_no_password_is_printed(tmp_path: Path, client: str) -> None:
    assert "hush" not in printed(tmp_path, "--client", client, "--database-url", SECRET)
    found = entry_of(tmp_path, client, HOLDFAST_DATABASE_URL=SECRET)
    assert "hush" not in str(found)
    assert found["env"] == {"HOLDFAST_DATABASE_URL": without_password(SECRET)}
    assert "--database-url" not in found["args"]


@pytest.mark.parametrize(
    ("given", "printed_url"),
    [
        ("sqlite:///a.db", "sqlite:///{folder}/a.db"),
        ("sqlite:///sub/../a.db", "sqlite:///{folder}/a.db"),
        ("sqlite:////var/a.db", "sqlite:////var/a.db"),
        ("json:///store", "json:///{folder}/store"),
        ("postgresql://db.example/holdfast", "postgresql://db.example/holdfast"),
        ("postgresql:///holdfast", "postgresql:///holdfast"),
    ],
)
def test_paths_are_absolute(tmp_path: Path, given: str, printed_url: str) -> None:
    arguments = entry_of(tmp_path, "json", "--database-url", given)["args"]
    assert arguments[-1] == printed_url.format(folder=tmp_path)


def test_settings_of_the_folder_are_in_it(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('database_url = "sqlite:///mine.db"\napplication = "app:hold"\n')
    (tmp_path / "app.py").write_text(APPLICATION)
    deeper = tmp_path / "deeper"
    deeper.mkdir()
    found = entry_of(deeper, "json")
    assert found["env"] == {"PYTHONPATH": str(tmp_path)}
    assert "app:hold" in found["args"]
    assert found["args"][-1] == f"sqlite:///{tmp_path}/mine.db"


async def test_it_works_as_printed_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = entry_of(tmp_path, "json", "--name", "ada")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    server = StdioServerParameters(
        command=found["command"], args=found["args"], env=clean_environment() | found.get("env", {})
    )
    async with Client(server) as client:
        await ask(client, "submit_task", goal="Look")
    assert (tmp_path / "holdfast.db").exists()
    assert not list(elsewhere.iterdir())
