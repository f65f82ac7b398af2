"""The ``holdfast`` command. Data on stdout, words on stderr; what it shows and does is the service's.

Modules:

commands/         The commands, each in the module of its name; those that belong together share one: `retry` is in
                  resume.py
demo/             ``holdfast demo``: an agent's worker is really killed in step 8 of 10, and another one finishes the
                  deployment
project/          The project that ``holdfast init`` writes: the files of this folder, as they stand
render/           How things look: from what the service returns to what a terminal shows
application.py    The Typer application: every command, in the order people meet them
arguments.py      A task's arguments, typed by people as JSON
confirmation.py   Asking before something happens
endpoint.py       When ``holdfast run`` stops to wait for a model that cannot be reached, and what it says then
errors.py         Errors as a terminal shows them: one line that says what is wrong and what to do; a traceback only
                  with --debug
exits.py          Exit codes, for scripts: what became of the command, without reading its words
filters.py        Which tasks: filters that combine, the same for listing and for acting on many
help.py           Help in plain words: TEXT where a value is wanted, nothing beside a flag
json_input.py     JSON and plain text, as people type them in a shell
live.py           Live views: a screen that renews itself in a terminal; one JSON document, or one page, after the other
                  elsewhere
logs.py           What a worker says on stderr while it works: lines for people, or one JSON object for each line
options.py        Arguments and options that several commands share, under the same names everywhere
own_command.py    What to type to run this very command once more
progress.py       What a person sees while a task runs: its page, live; or a line for each thing that happened
selection.py      Which tasks a command acts on: those that are named, or those that fit; and what became of each
signals.py        Signals that ask a process to stop, each answered in its turn
start.py          What an agent's state holds from the beginning, as it is typed: what ``submit`` and ``run`` share
store_session.py  Running a command on the store that it looks at, and what to type about a task of it
tasks.py          Which task of which application, with which arguments: what ``submit`` and ``run`` share
terminal.py       Where output goes: data to stdout, words to stderr; tables and colours for people, plain text for
                  programs
times.py          Times as people read them: local, and how long ago
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command. What it is made of takes a moment to import, and Ctrl-C may come in it."""
    try:
        from holdfast.cli.application import app  # noqa: PLC0415
        from holdfast.cli.errors import run  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.exit(130)
    run(app)
