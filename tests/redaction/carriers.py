"""Tasks that carry every kind of credential, and tasks whose code raises and reports what it should not."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

from holdfast import Agent, Context, Holdfast, Retry, ScriptedModel, Unknown, tool
from holdfast.agent.openai_model import OpenAIModel
from holdfast.agent.scripted import call
from holdfast.effects import http_request
from holdfast.mcp import tools
from tests.redaction import echo

Tasks = dict[str, tuple[Any, ...]]
"""What to submit, by a name."""

PATIENCE = 120.0
ONCE = Retry(max_attempts=1)
MARK = "CANARY"
"""In each of them, and in nothing else."""

PROXIED = "proxied.example"
"""A host that is reached through a proxy, which has a password of its own."""

NAMES = (
    *("model_key", "environment_key", "base_url_password", "bearer", "api_key_header", "cookie", "url_password"),
    *("query_key", "lookup_key", "mcp_token", "mcp_header", "mcp_query", "stdio_environment", "stdio_word"),
    *("stdio_url", "database_password", "api_token", "named_token", "proxy_password", "body_key"),
)
SECRETS = {name: f"sk-{MARK}-{name.replace('_', '-')}-0123456789" for name in NAMES}
EVERY = " ".join(secret for name, secret in SECRETS.items() if name != "proxy_password")
"""A text that a careless library might raise. A proxy's password is known only from the first request on."""

_ENCODED = [
    base64.b64encode(f"{before}{secret}".encode()).decode() for secret in SECRETS.values() for before in ("", "user:")
]


def leaks(text: str) -> bool:
    """Say whether one of them is in a text, as it is or as a Basic header has it."""
    return MARK in text or any(one in text for one in _ENCODED)


def define(hold: Holdfast, host: str) -> Tasks:
    """Make a task of everything that carries a credential, or that a text is recorded of."""
    return _requests(hold, host) | _models(hold, host) | _servers(hold, host) | _failing(hold) | _asking(hold)


def _requests(hold: Holdfast, host: str) -> Tasks:
    headers = {
        "Authorization": f"Bearer {SECRETS['bearer']}",
        "X-Api-Key": SECRETS["api_key_header"],
        "Cookie": f"a=b; sid={SECRETS['cookie']}",
    }

    def request(path: str, where: str = host, *, account: bool = True) -> Any:  # noqa: ANN401
        place = f"http://user:{SECRETS['url_password']}@{where}" if account else f"http://{where}"
        return http_request(
            "POST",
            f"{place}/{path}?api_key={SECRETS['query_key']}",
            headers=headers,
            lookup=f"{place}/refuse?access_token={SECRETS['lookup_key']}" if path == "break" else None,
            timeout=PATIENCE / 2,
        )

    requests = {mode: request(mode, account=mode != "answer") for mode in ("answer", "refuse", "break")}
    requests["nowhere"] = request("x", "127.0.0.1:1")
    requests["proxied"] = http_request("POST", f"http://{PROXIED}/refuse", timeout=PATIENCE / 2)

    @hold.task(retry=ONCE)
    async def ask(ctx: Context, mode: str) -> str:
        return str((await ctx.step(mode, requests[mode], {"a": 1}, timeout=PATIENCE, settle=0)).status)

    return {mode: (ask, mode) for mode in requests}


def _models(hold: Holdfast, host: str) -> Tasks:
    @tool(risk="read_only")
    def note(text: str) -> str:
        """Note a text."""
        return f"noted {text}"

    found: Tasks = {}
    for mode in ("401", "500", "error_event", "no_chunk", "text", "call"):
        account = f"user:{SECRETS['base_url_password']}@" if mode == "500" else ""  # sent instead of a key
        base = f"http://{account}{host}/v1"
        model = OpenAIModel(mode, base_url=base, api_key=None if mode == "error_event" else SECRETS["model_key"])
        agent = Agent(f"model-{mode}", model=model, tools=[note], builtins=False, retry=ONCE, model_retry=ONCE)
        found[f"model {mode}"] = (hold.register(agent), "go")
    model = OpenAIModel("401", base_url=f"http://{PROXIED}/v1", extra={"gateway": {"api_key": SECRETS["body_key"]}})
    agent = Agent("model-proxied", model=model, builtins=False, retry=ONCE, model_retry=ONCE)
    found["model proxied"] = (hold.register(agent), "go")
    return found


def _servers(hold: Holdfast, host: str) -> Tasks:
    over_http = tools(
        f"http://{host}/mcp?key={SECRETS['mcp_query']}",
        token=SECRETS["mcp_token"],
        headers={"X-Secret": SECRETS["mcp_header"]},
        wait=ONCE,
    )
    words = [
        *(sys.executable, str(Path(echo.__file__))),
        *("--token", SECRETS["stdio_word"], f"--db=pg://u:{SECRETS['stdio_url']}@h/d"),
    ]
    over_stdio = tools(words, env={"SOME_API_KEY": SECRETS["stdio_environment"]}, wait=ONCE)
    found: Tasks = {}
    for name, source, called in (
        ("mcp-http", over_http, ()),
        ("mcp-stdio", over_stdio, ("tell", "refuse", "tell")),
        ("mcp-fails", over_stdio, ("fail",)),
    ):
        model = ScriptedModel([*map(call, called), "done"])
        found[name] = (hold.register(Agent(name, model=model, tools=[source], builtins=False, retry=ONCE)), "go")
    return found


def _failing(hold: Holdfast) -> Tasks:
    @hold.task(retry=Retry(max_attempts=2, initial=0.001))
    async def careless(ctx: Context) -> None:
        def fail() -> None:
            error = ExceptionGroup(EVERY, [ValueError(EVERY), OSError(EVERY)])
            raise error from KeyError(EVERY)

        await ctx.step("careless", fail, retry=Retry(max_attempts=2, initial=0.001))

    @hold.task(retry=ONCE)
    async def doubtful(ctx: Context) -> str:
        def lose(effect_id: str) -> str:
            raise ConnectionResetError(f"{effect_id} {EVERY}")

        def look(effect_id: str) -> Unknown:
            return Unknown(f"{effect_id} {EVERY}")

        return await ctx.step("lost", lose, effect="once", reconcile=look, settle=0)

    @hold.task(retry=ONCE)
    async def saga(ctx: Context) -> None:
        def undo(done: str) -> None:
            raise ValueError(f"{done} {EVERY}")

        await ctx.step("done", lambda: "done", compensate=undo, retry=ONCE)
        raise ValueError(EVERY)

    return {one.name: (one,) for one in (careless, doubtful, saga)}


def _asking(hold: Holdfast) -> Tasks:
    @hold.task(retry=Retry(max_attempts=2, initial=0.001))
    async def verified(ctx: Context) -> str:
        return ctx.feedback or ""

    @verified.verify
    async def is_good(ctx: Context, result: str) -> Any:  # noqa: ANN401
        return f"not good in {ctx.task_id}: {EVERY}" if not result else True

    @hold.task(retry=ONCE)
    async def asks(ctx: Context) -> None:
        await ctx.approval("May I?", risk="external_action")

    @hold.task
    async def waits(ctx: Context) -> None:
        await ctx.wait_event("never")

    return {one.name: (one,) for one in (verified, asks, waits)}
