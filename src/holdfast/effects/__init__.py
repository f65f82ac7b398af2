"""Ready-made tools that can tell afterwards whether they did their work, and the means to build your own.

create_file    creates a file, never over another one
http_request   sends a request with the effect id as its Idempotency-Key
insert_row     inserts a row into a database of your own, under the effect id
run_command    runs a command, with marks on disk
effect         declares what a function of your own does to the world, how to find out, and how to undo it

Each carries what ``ctx.step`` needs to know: ``await ctx.step("write-report", create_file, path, text)``.
"""

from holdfast.effects.commands import CommandResult, run_command
from holdfast.effects.declaring import Probed, effect
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
