"""``$1``, ``$2``: the placeholders that mean the same in every database. No I/O.

PostgreSQL has them by itself. SQLite takes ``$1`` for a name, so that its parameters are given by name there. The
database's own style, ``?`` or ``%s``, works as well; a statement has one of the two.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast.model.errors import InvalidValue

_TOKEN: Final = re.compile(
    r"""
      '(?:[^']|'')*'                                    # a string
    | "(?:[^"]|"")*"                                    # a quoted name
    | --[^\n]*                                          # a comment
    | /\*.*?\*/
    | \$(?P<tag>[^\W\d]\w*|)\$ .*? \$(?P=tag)\$         # a string in dollars, of PostgreSQL
    | \w[\w$]*                                          # a word, which may have a dollar in it
    | \$(?P<number>[0-9]+)
    """,
    re.VERBOSE | re.DOTALL,
)


def numbered(sql: str, parameters: tuple[object, ...]) -> bool:
    """Say whether a statement has numbered placeholders; InvalidValue unless they are exactly its parameters."""
    if "$" not in sql or not parameters:
        return False
    numbers = {int(found["number"]) for found in _TOKEN.finditer(sql) if found["number"] is not None}
    if not numbers:
        return False
    given = len(parameters)
    if numbers != set(range(1, given + 1)):
        named = ", ".join(f"${number}" for number in sorted(numbers))
        last = "$1" if given == 1 else f"$1 to ${given}"
        raise InvalidValue(
            f"a statement with {named} got {given} parameters; it has to name {last}, each at least once"
        )
    return True
