"""What a person decides about is shown with every character that it has."""

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.glyphs import show_ascii, show_json, show_text

SHOWN = {
    "rm -rf /srv/tmp": "rm -rf /srv/tmp",
    "rm -rf /srv/tmp\u3000/  x": r"rm -rf /srv/tmp\u3000/ \u0020x",
    "a   b": r"a \u0020\u0020b",
    "tab\there": r"tab\u0009here",
    "zero\u200bwidth": r"zero\u200bwidth",
    "\u202egnp.exe": r"\u202egnp.exe",
    "no\u00a0break": r"no\u00a0break",
    "soft\u00adhyphen": r"soft\u00adhyphen",
    "braille\u2800blank": r"braille\u2800blank",
    "hangul\u3164filler": r"hangul\u3164filler",
    "colour\x1b[31m": r"colour\u001b[31m",
    "del\x7f": r"del\u007f",
    "\U000e0041tag": r"\udb40\udc41tag",
    "/srv/\u0430pp": r"/srv/\u0430pp",  # a Cyrillic letter in a Latin word
    "\u0441\u043e\u0440\u0443.com": r"\u0441\u043e\u0440\u0443.com",  # a word of them, in a name with Latin ones
    "p\u03b1ypal": r"p\u03b1ypal",
    "\uff52\uff4d": r"\uff52\uff4d",  # full width
    "\U0001d42b\U0001d426": r"\ud835\udc2b\ud835\udc26",  # mathematical
    "rm \u2013rf": r"rm \u2013rf",  # a dash
    "it\u2019s": r"it\u2019s",
    "a\u2215b": r"a\u2215b",  # a division slash
    "\u0131d": r"\u0131d",  # without its dot
    "e\u0301": r"e\u0301",  # a mark of its own
    "1\u0663": r"1\u0663",  # another script's digit
    "a\nb": "a\nb",
    " edges ": r"\u0020edges\u0020",
    # Plain text of other languages stays readable.
    "Gr\u00fc\u00dfe aus K\u00f6ln": "Gr\u00fc\u00dfe aus K\u00f6ln",
    "\u041f\u0440\u0438\u0432\u0435\u0442, config": "\u041f\u0440\u0438\u0432\u0435\u0442, config",
    "\u6771\u4eactower": "\u6771\u4eactower",
    "\u0939\u093f\u0928\u094d\u0926\u0940": "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\U0001f600": "\U0001f600",
}


def test_what_would_not_be_seen_as_what_it_is_is_written_out() -> None:
    assert {text: show_text(text) for text in SHOWN} == SHOWN


@given(
    data=st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_is_shown_is_exactly_the_data(data: Any) -> None:  # noqa: ANN401
    for shown in (show_json(data), show_ascii(data)):
        assert json.loads(shown) == data
        assert "  " not in shown
        assert shown.isprintable()
    assert re.fullmatch(r"[ -~]*", show_ascii(data))
