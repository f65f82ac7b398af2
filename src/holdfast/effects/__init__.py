"""Ready-made tools that can find out later whether they did their work, and the means to build your own.

create_file    creates a file, never over another one
http_request   sends a request with the effect id as its Idempotency-Key
insert_row     inserts a row into a database of your own, under the effect id
run_command    runs a command, with marks on disk
effect         declares what a function of your own does to the world, how to find out, and how to undo it

What the engine does with a declared effect is in engine/effects. Each tool declares its own effect for ``ctx.step``:
``await ctx.step("write-report", create_file, path, text)``.

Modules:

commands.py     Running a command, with marks on disk that record whether it was started and how it ended
declaration.py  Declaring what a function does to the world: how often it may be called, how to find out, how to undo it
durable.py      Shared by the tools that write files: names made of effect ids, and writes that survive a power cut
errors.py       Errors of the ready-made tools
exchange.py     One HTTP exchange within limits: its own connection, a timeout, a maximum size, no redirects
files.py        Creating a file: complete or not at all, never over another file
http.py         An HTTP request with the effect id as its Idempotency-Key, and what each answer to it proves
marks.py        The marks that a command leaves on disk, and the lock that shows whether it runs; see commands.py
rows.py         Inserting a row into your own database, with the effect id as its unique key
"""

from holdfast.effects.commands import CommandResult, run_command
from holdfast.effects.declaration import Probed, effect
from holdfast.effects.errors import (
    CommandFailed,
    CommandRefused,
    CommandTimedOut,
    FileTaken,
    Impossible,
    NotReached,
    RequestRefused,
    RowRefused,
    StillRunning,
    UnclearResponse,
)
from holdfast.effects.exchange import HttpResponse
from holdfast.effects.files import create_file
from holdfast.effects.http import REFUSALS, http_request
from holdfast.effects.rows import insert_row

__all__ = [
    "REFUSALS",
    "CommandFailed",
    "CommandRefused",
    "CommandResult",
    "CommandTimedOut",
    "FileTaken",
    "HttpResponse",
    "Impossible",
    "NotReached",
    "Probed",
    "RequestRefused",
    "RowRefused",
    "StillRunning",
    "UnclearResponse",
    "create_file",
    "effect",
    "http_request",
    "insert_row",
    "run_command",
]
