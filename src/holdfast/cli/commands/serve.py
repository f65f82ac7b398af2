"""``holdfast serve``: offer the store over HTTP until a signal asks to stop.

The first SIGTERM or SIGINT stops: no new connections, streams end, calls get a few seconds to finish, and the store is
closed. The second one ends the process at once: everything that was acknowledged is in the store.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from holdfast.cli.exits import SIGNALLED
from holdfast.cli.logs import log_to_stderr
from holdfast.cli.options import Application, Claim, OtherUrl, ReadOnly, checked_claims
from holdfast.cli.signals import StopSignals
from holdfast.cli.store_session import command
from holdfast.cli.terminal import print_message
from holdfast.model.errors import need_extras
from holdfast.redaction import know
from holdfast.service.session import opened, service_to_serve
from holdfast.settings import DEFAULT_HOST, DEFAULT_PORT, current_settings


@command
async def serve(
    application: Application = None,
    *,
    host: Annotated[
        str | None,
        typer.Option(help="The address to listen on; others than loopback need a token.", show_default=DEFAULT_HOST),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, help="The port to listen on; 0 for one that is free.", show_default=str(DEFAULT_PORT)
        ),
    ] = None,
    read_only: ReadOnly = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which clients reach it, beside those of its address; may be repeated.",
            show_default=False,
        ),
    ] = None,
    claim: Claim = None,
    database_url: OtherUrl = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every request.")] = False,
) -> None:
    """Serve the store over HTTP, until SIGTERM or Ctrl-C: MCP at /mcp, probes at /healthz and /readyz.

    Every caller needs a token: HOLDFAST_API_TOKEN, or HOLDFAST_API_TOKEN_NAME for one with fewer rights. Where none
    is set, and only this machine can reach the server, one is made for this run and shown.
    """
    need_extras("holdfast serve", "web", "mcp")
    # Extras, and slow to load.
    from holdfast.web.address import bound, resolve, url_of  # noqa: PLC0415
    from holdfast.web.application import application as web_application  # noqa: PLC0415
    from holdfast.web.names import HostNames  # noqa: PLC0415
    from holdfast.web.server_process import Server  # noqa: PLC0415
    from holdfast.web.tokens import find_tokens, introduction  # noqa: PLC0415

    settings = current_settings()
    address = resolve(host or settings["serve.host"], settings["serve.port"] if port is None else port)
    names = HostNames(address, allow_host or settings["serve.allow_hosts"] or ())
    tokens, secret = find_tokens(os.environ, address)
    claimable = checked_claims(claim)
    log_to_stderr(quiet=False, verbose=verbose)
    stopping = asyncio.Event()

    def stop(number: signal.Signals) -> None:
        print_message(f"{number.name}: stopping")
        stopping.set()

    async with AsyncExitStack() as ending:
        ending.enter_context(StopSignals(stop, _exit_at_once))  # first, so that it lasts until everything is closed
        listener = ending.enter_context(bound(address))
        service = service_to_serve(application, database_url, role="serve")
        await ending.enter_async_context(opened(service, read_only=read_only))
        async with web_application(
            service, tokens=tokens, names=names, read_only=read_only, claimable=claimable
        ) as served:
            # The server is closed after the application, and before the store.
            server = await ending.enter_async_context(Server(served, listener))
            how = " read-only" if read_only else ""
            print_message(f"serving {service.shown_url}{how}; MCP is at {url_of(listener)}/mcp")
            for line in introduction(tokens, secret):
                print_message(line)
            know(secret)  # from here on it is redacted everywhere
            if not names.is_known_elsewhere:
                print_message("it answers only to localhost; give the names that clients use with --allow-host")
            await server.run(until=stopping)


def _exit_at_once(number: signal.Signals) -> None:
    print_message(f"{number.name}: leaving now")
    sys.stderr.flush()
    os._exit(SIGNALLED + number)
