"""``holdfast serve`` over real HTTP: where it listens, which callers it lets in, and that it never shows a secret."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.project.support import PATIENCE, contents, holdfast, refusal
from tests.web.support import OTHER, SECRET, Served, bearer, make_store, serving, without_modules


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, url: str) -> Iterator[Served]:
    """A server with two tokens, and all its output."""
    folder = tmp_path_factory.mktemp("served")
    options = ("--verbose", "--allow-host", "holdfast.example.com")
    with serving(folder, url, *options, HOLDFAST_API_TOKEN=SECRET, HOLDFAST_API_TOKEN_EYES=f"read:{OTHER}") as served:
        yield served
        assert SECRET not in served.said
        assert OTHER not in served.said


def test_it_says_where_it_listens_and_whose_tokens_it_takes(served: Served, url: str) -> None:
    first, second, *_ = served.said.splitlines()
    port = served.url.rpartition(":")[2]
    assert first == f"holdfast: serving {url}; MCP is at http://127.0.0.1:{port}/mcp"
    assert second == (
        "holdfast: tokens: api (read+work+submit; HOLDFAST_API_TOKEN), eyes (read; HOLDFAST_API_TOKEN_EYES)"
    )
    assert int(port) > 0


def test_a_token_decides_who_calls(served: Served) -> None:
    rights = {"read_only": False, "claimable": ["handover"]}
    assert served.call(SECRET).json() == {"name": "api", "scopes": ["read", "submit", "work"]} | rights
    assert served.call(OTHER).json() == {"name": "eyes", "scopes": ["read"]} | rights
    for wrong in (None, "x" * 32, f"read:{OTHER}"):
        answer = served.call(wrong)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_a_token_in_the_url_is_not_taken_and_not_logged(served: Served) -> None:
    assert served.get(f"/mcp?access_token={SECRET}&token={OTHER}").status_code == 401
    served.until(lambda: "GET /mcp: 401" in served.said)
    assert "access_token" not in served.said


def test_another_site_does_not_get_in_by_a_name_of_its_own(served: Served) -> None:
    assert served.call(Host="evil.example").status_code == 421
    assert served.call(Host=f"evil.example:{served.url.rpartition(':')[2]}").status_code == 421
    assert served.call(Origin="https://evil.example").status_code == 403
    assert served.call(Host="holdfast.example.com", Origin="https://holdfast.example.com").status_code == 200
    assert served.call(Host="localhost:1").status_code == 200
    assert served.get("/", headers={"Host": "evil.example"}).status_code == 421


def test_probes_come_in_by_any_name_without_a_token(served: Served) -> None:
    for path, status in (("/healthz", "ok"), ("/readyz", "ready")):
        answer = served.get(path, headers={"Host": "10.42.0.7:8787"})
        assert (answer.status_code, answer.json()) == (200, {"status": status})


def test_the_first_page_says_what_this_is(served: Served) -> None:
    answer = served.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert "This is Holdfast" in answer.text
    assert "/mcp" in answer.text


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/mcp", "/nowhere", "/healthz/", "/mcp/../mcp"])
@pytest.mark.parametrize("token", [None, SECRET])
def test_what_every_answer_carries(served: Served, path: str, token: str | None) -> None:
    answer = served.get(path, headers=bearer(token))
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers


@pytest.mark.parametrize("host", [b"", b"Host: 127.0.0.1\r\nHost: evil.example\r\n", b"Host: a b\r\n"])
def test_a_request_without_a_proper_host_is_refused(served: Served, host: bytes) -> None:
    name, _, port = served.url.removeprefix("http://").partition(":")
    for version, method in ((b"1.0", b"GET"), (b"1.1", b"POST")):
        with socket.create_connection((name, int(port)), PATIENCE) as raw:
            raw.sendall(
                b"%b /mcp HTTP/%b\r\n%bAuthorization: Bearer %b\r\n\r\n" % (method, version, host, SECRET.encode())
            )
            first = raw.makefile("rb").readline()
        assert first.split()[1] in {b"400", b"421"}


def test_a_defect_does_not_end_the_server_and_is_not_shown(served: Served) -> None:
    answer = served.call(**{"x-do": "break"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        500,
        "a defect of the server; its log has the details",
    )
    served.until(lambda: "RuntimeError: a defect" in served.said)
    assert served.call().status_code == 200


def test_requests_are_not_logged_unless_asked_for(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, url, HOLDFAST_API_TOKEN=SECRET) as served:
        assert served.call().status_code == 200
        assert served.call(None).status_code == 401
        assert len(served.said.splitlines()) == 2


def test_without_a_token_it_makes_one_and_shows_it_once(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, url, "--read-only", "--claim", "deploy") as served:
        served.until(lambda: "Bearer" in served.said)
        first, second, third = served.said.splitlines()
        assert first.startswith(f"holdfast: serving {url} read-only; MCP is at ")
        assert second == "holdfast: HOLDFAST_API_TOKEN is not set; this token holds for this run:"
        found = re.fullmatch(r"holdfast: Authorization: Bearer (\S{43})", third)
        assert found
        assert served.call(None).status_code == 401
        assert served.call(found[1]).json() == {
            "name": "local",
            "scopes": ["read", "submit", "work"],
            "read_only": True,
            "claimable": ["handover", "deploy"],
        }
        assert served.said.count(found[1]) == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 - what is tested is that it is refused
def test_without_a_token_nothing_is_opened_to_others(tmp_path: Path, url: str, host: str) -> None:
    line = refusal(holdfast(tmp_path, "serve", "--port", "0", "--host", host, HOLDFAST_DATABASE_URL=url), 2)
    assert f"others can reach {host}, and there is no token; set HOLDFAST_API_TOKEN to what this prints: python" in line
    assert holdfast(tmp_path, "serve", "--host", host, HOLDFAST_DATABASE_URL=url, HOLDFAST_API_TOKEN="").returncode == 2


def test_with_a_token_it_is_open_to_those_who_know_its_name(tmp_path: Path, url: str) -> None:
    options = ("--host", "0.0.0.0", "--allow-host", "10.0.0.5")  # noqa: S104
    with serving(tmp_path, url, *options, HOLDFAST_API_TOKEN=SECRET) as served:
        local = served.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        assert served.get("/", headers={"Host": "10.0.0.5:8787"}).status_code == 200
        assert served.get("/", headers={"Host": "0.0.0.0"}).status_code == 421  # noqa: S104
        assert served.get("/", headers={"Host": local.removeprefix("http://")}).status_code == 200
        assert "answers only to localhost" not in served.said
    with serving(tmp_path, url, "--host", "0.0.0.0", HOLDFAST_API_TOKEN=SECRET) as served:  # noqa: S104
        served.until(lambda: "it answers only to localhost; give the names that clients use" in served.said)


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "words"),
    [
        (["--host", "no-such-host.invalid"], {}, 2, "cannot be looked up"),
        (["--host", "192.0.2.1"], {"HOLDFAST_API_TOKEN": SECRET}, 2, "give --host an address of this machine"),
        (["--allow-host", "*"], {}, 2, "'*' is not the name of a host"),
        ([], {"HOLDFAST_API_TOKEN": "too-short"}, 2, "16 are the least; make a good one: python -c"),
        ([], {"HOLDFAST_API_TOKEN_CI": f"{SECRET}:{OTHER}"}, 2, "HOLDFAST_API_TOKEN_CI does not begin with scopes"),
        ([], {"HOLDFAST_API_TOKEN_CI": f"approve:{SECRET}"}, 2, "HOLDFAST_API_TOKEN_CI does not begin with scopes"),
        ([], {"HOLDFAST_API_TOKEN": SECRET, "HOLDFAST_API_TOKEN_CI": f"read:{SECRET}"}, 2, "hold the same secret"),
        ([], {"HOLDFAST_SERVE_PORT": "http"}, 2, "HOLDFAST_SERVE_PORT is 'http'; give a port"),
        (["--database-url", "memory://"], {}, 2, "lives inside this process and ends with it"),
        (["--read-only", "--database-url", "sqlite:///missing.db"], {}, 1, "there is no store at sqlite:///missing.db"),
    ],
)
def test_what_is_refused_in_one_line(
    tmp_path: Path, url: str, arguments: list[str], *, environment: dict[str, str], code: int, words: str
) -> None:
    settings = {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_SERVE_PORT": "0"} | environment
    line = refusal(holdfast(tmp_path, "serve", *arguments, check=False, **settings), code)
    assert words in line
    assert SECRET not in line
    assert OTHER not in line
    assert contents(tmp_path) == {}


def test_a_port_in_use_is_one_line(tmp_path: Path, url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refusal(holdfast(tmp_path, "serve", "--port", str(port), HOLDFAST_DATABASE_URL=url), 1)
    assert f"port {port} of 127.0.0.1 is in use; stop what listens there, or choose another with --port" in line


def test_settings_say_where_it_listens(tmp_path: Path, url: str) -> None:
    settings = f'database_url = "{url}"\n[serve]\nhost = "::1"\nport = 1\nallow_hosts = ["box"]\n'
    (tmp_path / "holdfast.toml").write_text(settings, encoding="utf-8")
    with serving(tmp_path, url, HOLDFAST_API_TOKEN=SECRET) as served:
        assert served.url.startswith("http://[::1]:")
        assert served.call(Host="box").status_code == 200
        assert served.call(Host="evil.example").status_code == 421


def test_config_shows_no_token(tmp_path: Path) -> None:
    tokens = {"HOLDFAST_API_TOKEN": SECRET, "HOLDFAST_API_TOKEN_EYES": f"read:{OTHER}"}
    for arguments in (("config",), ("config", "--json"), ("doctor",)):
        answer = holdfast(tmp_path, *arguments, check=False, **tokens)
        said = answer.stdout + answer.stderr
        assert SECRET not in said
        assert OTHER not in said
        assert "it is not a setting" not in said
    assert json.loads(holdfast(tmp_path, "config", "--json", check=True, **tokens).stdout)["unknown_variables"] == {}


@pytest.mark.parametrize(
    ("missing", "extra"),
    [(["starlette"], "web"), (["uvicorn"], "web"), (["mcp"], "mcp"), (["uvicorn", "mcp"], "web,mcp")],
)
def test_a_missing_extra_is_named(tmp_path: Path, missing: list[str], extra: str) -> None:
    answer = without_modules(missing, tmp_path, "serve", "--port", "0")
    assert f"serve needs an extra that is not installed: pip install 'holdfast[{extra}]'" in refusal(answer, 1)
    assert contents(tmp_path) == {}


def test_other_commands_load_nothing_of_it() -> None:
    code = "import sys, holdfast.cli.application; print(' '.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    ).stdout.split()
    assert {"starlette", "uvicorn", "mcp", "holdfast.web"}.isdisjoint(loaded)
