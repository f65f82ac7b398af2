"""``holdfast fork``: begin a new task that shares another one's past."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.arguments import bind_json
from holdfast.cli.json_input import read_json
from holdfast.cli.options import AsJson, By, DatabaseUrl, TaskId
from holdfast.cli.render.words import safe
from holdfast.cli.store_session import command, opened, user
from holdfast.cli.terminal import print_json, print_message
from holdfast.cli.times import read_seconds
from holdfast.model.errors import InvalidValue
from holdfast.service.service import Bound, Definitions, Service
from holdfast.service.session import find_application


@command
async def fork(
    task: TaskId,
    *,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="STEP",
            help="The last step they share: its key, its name or number as listed. By default all completed steps.",
            show_default=False,
        ),
    ] = None,
    args: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Other arguments: an array; with --app also an object.", show_default=False),
    ] = None,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:HOLDFAST",
            help="The application that defines the task: its annotations check and type the --args. "
            "Without it they are stored as they are.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="The same key again is the same fork.", show_default=False)] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="The fork has to be over by then: seconds, or 10m, 2h. By default it has as much time as the other "
            "task had at first.",
            show_default=False,
        ),
    ] = None,
    by: By = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Begin a new task that shares the past of another up to a step, and print its id.

    Shared steps replay and are not done again. The other task does not change.
    """
    if app is not None and args is None:
        raise InvalidValue("--app says how to read --args; give both, or neither")
    over_in = None if deadline is None else read_seconds(deadline, what="--deadline")
    application = None if app is None else find_application(app, database_url)
    who = user(by)
    async with opened(database_url if application is None else application.url) as service:
        definitions = None if application is None else application.definitions
        given = None if args is None else await _arguments(service, task, args, definitions)
        forked, origin = await service.fork(task, at=_place(at), user_input=given, key=key, deadline=over_in, by=who)
    if as_json:
        place = {"task_id": origin.task_id, "step": origin.step, "position": origin.position}
        print_json({"id": forked.id, "name": forked.name, "state": str(forked.state), "forked_from": place})
    else:
        typer.echo(forked.id)
    after = f", up to and including {safe(origin.step)!r}" if origin.step else ", which had not begun"
    print_message(
        f"it shares the past of task {origin.task_id}{after}, and is {forked.state} in queue {forked.queue!r}"
    )


def _place(at: str | None) -> str | int | None:
    """Read ``--at``: digits are a position in the journal, anything else is the key of a step."""
    return int(at) if at is not None and at.isascii() and at.isdigit() else at


async def _arguments(service: Service, part: str, text: str, definitions: Definitions | None) -> list[Any] | Bound[Any]:
    if definitions is None:
        read = read_json(text, what="--args")
        if not isinstance(read, list):
            raise InvalidValue("--args is not an array; write '[\"billing\", 3]', or add --app to give named arguments")
        return read
    name = (await service.task(part)).name
    definition = definitions.get(name)
    if definition is None:
        known = ", ".join(definitions.names) or "none"
        raise InvalidValue(f"the application of --app does not define {name!r}; it has: {known}")
    return bind_json(definition, text)
