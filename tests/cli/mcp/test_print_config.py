"""``holdfast mcp --print-config``: the form of each client, for a server it starts and for one it reaches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.mcp.support import STARTING, entry, option, printed
from tests.cli.project.support import contents, holdfast, refusal
from tests.web.support import OTHER, SECRET, without_modules

URL = "https://holdfast.example.com/mcp"
BEARER = {"Authorization": "Bearer YOUR-TOKEN"}


@pytest.mark.parametrize("client", STARTING)
def test_histories_can_tell_the_clients_of_one_user_apart(tmp_path: Path, client: str) -> None:
    found = entry(client, printed(tmp_path, "--client", client).stdout)
    assert option(found, "--name") == (None if client == "json" else client)
    found = entry(client, printed(tmp_path, "--client", client, "--name", "ada").stdout)
    assert found["args"].count("--name") == 1
    assert option(found, "--name") == "ada"


def test_without_a_client_it_is_the_form_that_most_take(tmp_path: Path) -> None:
    answer = printed(tmp_path, "--read-only", "--claim", "deploy")
    assert answer.stdout == printed(tmp_path, "--read-only", "--claim", "deploy", "--client", "json").stdout
    assert entry("json", answer.stdout)["args"][-3:] == ["--read-only", "--claim", "deploy"]
    assert answer.stderr == ""


def test_the_names_of_those_who_take_that_form_are_known(tmp_path: Path) -> None:
    for client in ("claude-desktop", "cline", "cursor", "windsurf"):
        text = printed(tmp_path, "--client", client).stdout.replace(f',\n        "--name",\n        "{client}"', "")
        assert text == printed(tmp_path).stdout


# A server that runs


@pytest.mark.parametrize(
    ("client", "found"),
    [
        ("json", {"url": URL, "headers": BEARER}),
        ("cursor", {"url": URL, "headers": BEARER}),
        ("windsurf", {"serverUrl": URL, "headers": BEARER}),
        ("cline", {"type": "streamableHttp", "url": URL, "headers": BEARER}),
        ("codex", {"url": URL, "bearer_token_env_var": "HOLDFAST_API_TOKEN"}),
        (
            "claude-code",
            {"words": ["--transport", "http", "holdfast", URL, "--header", "Authorization: Bearer YOUR-TOKEN"]},
        ),
        ("vscode", {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${input:holdfast-token}"}}),
    ],
)
def test_each_client_gets_its_configuration(tmp_path: Path, client: str, found: dict[str, object]) -> None:
    tokens = {"HOLDFAST_API_TOKEN": SECRET, "HOLDFAST_API_TOKEN_EYES": f"read:{OTHER}"}
    answer = printed(tmp_path, "--url", URL, "--client", client, settings=tokens)
    assert entry(client, answer.stdout) == found
    assert SECRET not in answer.stdout + answer.stderr
    assert OTHER not in answer.stdout + answer.stderr
    assert "token" in answer.stderr
    assert ("YOUR-TOKEN" in answer.stdout) is ("YOUR-TOKEN" in answer.stderr)
    assert contents(tmp_path) == {}


def test_vs_code_asks_for_the_token(tmp_path: Path) -> None:
    (asked,) = json.loads(printed(tmp_path, "--url", URL, "--client", "vscode").stdout)["inputs"]
    assert (asked["id"], asked["type"], asked["password"]) == ("holdfast-token", "promptString", True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--client", "codex"], "--client and --url say what --print-config prints; add it, or leave them out"),
        (["--url", URL], "--client and --url say what --print-config prints"),
        (["--print-config", "--client", "claude-desktop", "--url", URL], "can only start a server of its own"),
        (["--print-config", "--url", URL, "--read-only"], "pass what it serves, and to whom, to `holdfast serve`"),
        (["--print-config", "--url", URL, "--name", "ada"], "pass what it serves, and to whom"),
        (["--print-config", "--url", URL, "app:hold"], "pass what it serves, and to whom"),
        (["--print-config", "--url", URL, "--database-url", "sqlite:///x.db"], "pass what it serves, and to whom"),
        (["--print-config", "--url", "127.0.0.1:8787/mcp"], "such as http://127.0.0.1:8787/mcp"),
        (["--print-config", "--url", "http://127.0.0.1:8787"], "such as http://127.0.0.1:8787/mcp"),
        (["--print-config", "--url", f"https://ann:{SECRET}@box/mcp"], "a token is sent in a header"),
        (["--print-config", "--url", f"https://box/mcp?token={SECRET}"], "a token is sent in a header"),
        (["--print-config", "--url", "http://[box/mcp"], "such as http://127.0.0.1:8787/mcp"),
        (["--print-config", "--url", "http://box:http/mcp"], "such as http://127.0.0.1:8787/mcp"),
        (["--print-config", "--name", ""], "--name"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    line = refusal(holdfast(tmp_path, "mcp", *arguments), 2)
    assert words in line
    assert SECRET not in line
    assert contents(tmp_path) == {}


# Without the extra


def test_without_the_extra_nothing_is_made(tmp_path: Path) -> None:
    line = refusal(without_modules(["mcp"], tmp_path, "mcp"), 1)
    assert line == "holdfast: serving MCP needs an extra that is not installed: pip install 'holdfast[mcp]'"
    assert contents(tmp_path) == {}


def test_what_cannot_start_yet_is_printed_and_said(tmp_path: Path) -> None:
    answer = without_modules(["mcp"], tmp_path, "mcp", "--print-config")
    assert answer.returncode == 0
    assert entry("json", answer.stdout)["args"][:3] == ["-m", "holdfast", "mcp"]
    assert answer.stderr == (
        "holdfast: it cannot start yet: serving MCP needs an extra that is not installed: pip install 'holdfast[mcp]'\n"
    )
    assert without_modules(["mcp"], tmp_path, "mcp", "--print-config", "--url", URL).stderr.count("\n") == 1
