"""Breaking a line where it ends, without losing a blank."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from holdfast.cli.render.exact import fold
from holdfast.model.glyphs import BLANK

LINES = st.lists(st.text("ab\u6771", min_size=1), min_size=1).map(" ".join)  # no two blanks in a row


@given(line=LINES, width=st.integers(4, 20))
def test_a_line_is_broken_without_losing_a_blank(line: str, width: int) -> None:
    parts = fold(line, width)
    assert "".join(parts).replace(BLANK, " ") == line
    for part in parts:
        assert cell_len(part) <= width
        assert part == part.strip()
