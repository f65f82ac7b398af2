"""``holdfast mcp``: serve the store to one MCP client over stdin and stdout, until the client leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exits import SIGNALLED
from holdfast.cli.logs import log_to_stderr
from holdfast.cli.opening import command, opened_to_serve, user
from holdfast.cli.options import Application, OtherUrl
from holdfast.cli.signals import StopSignals
from holdfast.cli.terminal import say
from holdfast.model.checks import check_name
from holdfast.model.errors import InvalidValue, MissingExtra
from holdfast.model.task import HANDOVER
from holdfast.service.access import EVERYTHING, READ_ONLY, Caller
from holdfast.store.url import without_password

if TYPE_CHECKING:
    from holdfast.mcp.server import McpServer


class Client(StrEnum):
    """A program whose configuration can be printed."""

    JSON = "json"
    CLAUDE_CODE = "claude-code"
    VSCODE = "vscode"
    CODEX = "codex"


Claim = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help=f"A task that agents outside may claim, beside {HANDOVER!r}; may be repeated.",
        show_default=False,
    ),
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Let nobody change anything.")]


@command
async def mcp(
    application: Application = None,
    *,
    read_only: ReadOnly = False,
    claim: Claim = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What histories call the client; by default you.", show_default=False),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print what to put into a client's configuration, and stop.")
    ] = False,
    client: Annotated[Client, typer.Option(help="With --print-config: in whose form.")] = Client.JSON,
    database_url: OtherUrl = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, on stderr.")] = False,
) -> None:
    """Serve the store to an MCP client over stdin and stdout. Clients start this by themselves.

    The client has your rights, as far as they reach: it can read, submit and work, but it cannot approve, answer for a
    person or change settings; nobody can over MCP. See --print-config for how to set a client up.
    """
    if print_config:
        from holdfast.cli.commands.mcp_config import snippet  # noqa: PLC0415 - seldom needed

        options = ["--read-only"] if read_only else []
        options += [part for one in claim or () for part in ("--claim", one)]
        options += [] if name is None else ["--name", name]
        typer.echo(snippet(client, application, database_url, options))
        return
    if sys.stdin.isatty():
        raise InvalidValue(
            "this speaks MCP on stdin and stdout, and a terminal does not; set it up in your client with what "
            "`holdfast mcp --print-config` prints, or serve it over HTTP with `holdfast serve`"
        )
    log_to_stderr(quiet=not verbose, verbose=verbose)
    caller = Caller(name or user(None), READ_ONLY if read_only else EVERYTHING)
    claimable = checked_claims(claim)
    async with opened_to_serve(application, database_url, read_only=read_only) as hold:
        server = mcp_server()(hold, caller=caller, read_only=read_only, claimable=claimable)
        rights = ", ".join(sorted(caller.scopes))
        say(
            f"serving {without_password(hold.url)} over stdio with the rights of {caller.name}: {rights}; "
            f"agents may claim: {', '.join(claimable)}"
        )
        ended_by = await _serve(server)
    if ended_by is not None:
        # A thread of the SDK may still wait for input that never comes. Everything of ours is closed.
        sys.stderr.flush()
        os._exit(SIGNALLED + ended_by)


def mcp_server() -> type[McpServer]:
    """Return the server's class. Raises MissingExtra where the SDK is not installed."""
    try:
        from holdfast.mcp.server import McpServer  # noqa: PLC0415 - an extra, and slow to load
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("holdfast"):
            raise
        raise MissingExtra("mcp", "serving MCP") from missing
    return McpServer


def checked_claims(claim: list[str] | None) -> list[str]:
    """Return the names of the tasks that agents outside may claim."""
    return list(dict.fromkeys([HANDOVER, *(check_name("the task to claim", name) for name in claim or ())]))


async def _serve(server: McpServer) -> signal.Signals | None:
    """Serve until the client leaves; return the signal that ended it, if one did."""
    serving = asyncio.create_task(server.serve_stdio())
    ended_by: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        ended_by.append(number)
        serving.cancel()

    with StopSignals(stop):
        await asyncio.wait([serving])
    if ended_by:
        with suppress(asyncio.CancelledError):
            await serving
        return ended_by[0]
    await serving
    return None
