"""``holdfast mcp``: serve the store to one MCP client over stdin and stdout, until the client leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.cli.commands.mcp_config import McpClient, to_reach, to_start
from holdfast.cli.exits import SIGNALLED
from holdfast.cli.logs import log_to_stderr
from holdfast.cli.options import Application, Claim, OtherUrl, ReadOnly, checked_claims
from holdfast.cli.signals import StopSignals
from holdfast.cli.store_session import command, user
from holdfast.cli.terminal import print_message
from holdfast.model.checks import check_name
from holdfast.model.errors import InvalidValue, MissingExtra, need_extras
from holdfast.service.access import EVERYTHING, READ_ONLY, Caller
from holdfast.service.session import opened, service_to_serve

if TYPE_CHECKING:
    from holdfast.mcp.server import McpServer

_NEEDED_FOR: Final = "serving MCP"
_LAST_MOMENT: Final = 0.5
"""Seconds that calls under way have to end after a signal."""
_STDOUT: Final = 1
_STDERR: Final = 2


@command
async def mcp(
    application: Application = None,
    *,
    read_only: ReadOnly = False,
    claim: Claim = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The client's name in histories; by default your own.", show_default=False),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print what to put into a client's configuration, and stop.")
    ] = False,
    client: Annotated[
        McpClient | None,
        typer.Option(help="With --print-config: in whose form.", show_default=McpClient.JSON.value),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="With --print-config: reach a `holdfast serve` there, as http://127.0.0.1:8787/mcp.",
            show_default=False,
        ),
    ] = None,
    database_url: OtherUrl = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, on stderr.")] = False,
) -> None:
    """Serve the store to an MCP client over stdin and stdout. Clients start this by themselves.

    The client acts with your rights, within limits: it can read, submit and work. No MCP client can approve, answer for
    a person or change settings. See --print-config for how to set a client up.
    """
    if name is not None:
        check_name("--name", name)
    if print_config:
        options = ["--read-only"] if read_only else []
        options += [part for one in claim or () for part in ("--claim", one)]
        options += ["--name", name] if name else []
        _print(client or McpClient.JSON, url, application, database_url, options)
        return
    if client or url:
        raise InvalidValue("--client and --url say what --print-config prints; add it, or leave them out")
    if sys.stdin.isatty():
        raise InvalidValue(
            "this speaks MCP on stdin and stdout, and a terminal does not; set it up in your client with what "
            "`holdfast mcp --print-config` prints, or serve it over HTTP with `holdfast serve`"
        )
    need_extras(_NEEDED_FOR, "mcp")
    from holdfast.mcp.server import McpServer  # noqa: PLC0415 - an extra, and slow to load

    log_to_stderr(quiet=not verbose, verbose=verbose)
    caller = Caller(name or user(None), READ_ONLY if read_only else EVERYTHING)
    claimable = checked_claims(claim)
    with _stdout_for_protocol():
        service = service_to_serve(application, database_url, role="mcp")
    async with opened(service, read_only=read_only):
        server = McpServer(service, caller=caller, read_only=read_only, claimable=claimable)
        rights = ", ".join(sorted(caller.scopes))
        print_message(
            f"serving {service.shown_url} over stdio with the rights of {caller.name}: {rights}; "
            f"agents may claim: {', '.join(claimable)}"
        )
        ended_by = await _serve(server)
    if ended_by is not None:
        # A thread of the SDK may still wait for input that never comes. Our own parts are closed.
        sys.stderr.flush()
        os._exit(SIGNALLED + ended_by)


def _print(
    client: McpClient, url: str | None, application: str | None, database_url: str | None, options: list[str]
) -> None:
    """Print the configuration to stdout, and what is left to do with it to stderr."""
    if url is None:
        printed = to_start(client, application, database_url, options)
    elif application or database_url or options:
        raise InvalidValue("--url reaches a server that runs; pass what it serves, and to whom, to `holdfast serve`")
    else:
        printed = to_reach(client, url)
    typer.echo(printed.text)
    for words in printed.to_do:
        print_message(words)
    if url is None:
        try:
            need_extras(_NEEDED_FOR, "mcp")
        except MissingExtra as missing:
            print_message(f"it cannot start yet: {missing}")


async def _serve(server: McpServer) -> signal.Signals | None:
    """Serve until the client leaves; return the signal that ended it, if one did."""
    serving = asyncio.create_task(server.serve_stdio())
    stopped: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
    either: list[asyncio.Future[Any]] = [serving, stopped]
    with StopSignals(stopped.set_result):
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            await serving
            return None
        serving.cancel()
        # Calls under way end. The thread that waits for input does not, until the client sends something.
        await asyncio.wait([serving], timeout=_LAST_MOMENT)
        return stopped.result()


@contextmanager
def _stdout_for_protocol() -> Iterator[None]:
    """Keep stdout for the protocol: what an application prints when it is imported goes to stderr."""
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        yield
    finally:
        os.dup2(kept, _STDOUT)
        os.close(kept)
