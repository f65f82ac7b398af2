"""``$1``: one style of placeholders for every database."""

import pytest

from holdfast import InvalidValue
from holdfast.store.placeholders import numbered


def test_which_statements_have_numbered_placeholders() -> None:
    for sql, parameters, expected in (
        ("SELECT $1", ("a",), True),
        ("SELECT $2, $1, $2", ("a", "b"), True),
        ("SELECT '$1', ?", ("a",), False),
        ("SELECT '$1' || $1", ("a",), True),
        ("SELECT 'it''s $1', %s", ("a",), False),
        ('SELECT "$1" FROM t WHERE a = ?', ("a",), False),
        ("SELECT ? -- $1\n", ("a",), False),
        ("SELECT ? /* $1\n */", ("a",), False),
        ("SELECT $$ $1 $$, %s", ("a",), False),
        ("SELECT $x$ $1 $$ $x$, $1", ("a",), True),
        ("SELECT price$1 FROM t WHERE a = ?", ("a",), False),
        ("SELECT $name", ("a",), False),
        ("SELECT '$1'", (), False),
        ("SELECT 10 % 3, $1", ("a",), True),
    ):
        assert numbered(sql, parameters) is expected, sql


def test_placeholders_and_parameters_have_to_agree() -> None:
    for sql, parameters in (
        ("SELECT $2", ("a",)),
        ("SELECT $1", ("a", "b")),
        ("SELECT $1, $3", ("a", "b")),
        ("SELECT $0", ("a",)),
    ):
        with pytest.raises(InvalidValue, match=r"a statement with \$.* got \d parameters; it has to name \$1"):
            numbered(sql, parameters)
