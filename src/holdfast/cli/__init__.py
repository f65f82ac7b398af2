"""The ``holdfast`` command. Data on stdout, words on stderr; what it shows and does is the service's.

commands/       the commands, each in the module of its name; demo/ is `demo`
application.py  the Typer application: every command, in the order people meet them
finding.py      the user's application: its Holdfast object, by module and name
opening.py      the store a command looks at            options.py, filters.py   what several commands take
terminal.py     where output goes                       live.py     views that renew themselves
render/         how things look                         times.py    times as people read and write them
errors.py       errors in one line, with a remedy       exits.py    exit codes, for scripts
help.py         help in plain words                     signs.py    signs where a terminal has only letters
choosing.py     many tasks at once                      asking.py   asking before something is lost
tasks.py, arguments.py   a task to begin with           project/    the files that `init` writes
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
