"""The ``holdfast`` command. Data goes to stdout, messages to stderr; the service does the work.

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
endpoint.py       When ``holdfast run`` gives up on a model that cannot be reached, and what it prints then
errors.py         Errors as a terminal shows them: one line that says what is wrong and what to do; a traceback only
                  with --debug
exits.py          Exit codes, for scripts: what became of the command, without reading its output
filters.py        Which tasks: filters that combine, the same for listing and for acting on many
help.py           Help in plain words: TEXT for a value, nothing for a flag
json_input.py     JSON and plain text, as people type them in a shell
live.py           Live views: in a terminal a screen that is redrawn; otherwise one JSON document, or one page, after
                  the other
logs.py           What a worker logs to stderr while it works: lines for people, or one JSON object for each line
options.py        Arguments and options that several commands share, under the same names everywhere
own_command.py    What to type to run this command once more
progress.py       What a person sees while a task runs: its live page, or a line for each event
selection.py      Which tasks a command acts on: those that are named, or those that fit; and what became of each
signals.py        Signals that ask a process to stop: one reaction for the first, another for the second
start.py          The first state of an agent, from options: what ``submit`` and ``run`` share
store_session.py  Opening the store of a command, and the commands to suggest for its tasks
tasks.py          Which task of which application, with which arguments: what ``submit`` and ``run`` share
terminal.py       Where output goes: data to stdout, messages to stderr; tables and colours for people, plain text for
                  programs
times.py          Times as people read them: local, and how long ago
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command. Its imports take a moment, and Ctrl-C may come during them."""
    try:
        from holdfast.cli.application import app  # noqa: PLC0415
        from holdfast.cli.errors import run  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.exit(130)
    run(app)
