"""The page about machines shows what its own code says. (That the code runs is tested with all the other pages.)"""

import re
from pathlib import Path

from holdfast import Machine

PAGE = Path(__file__).parents[4] / "docs" / "machines.md"


def test_the_diagram_on_the_page_is_that_of_the_machine_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    program, *_ = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (diagram,) = re.findall(r"^```mermaid\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    declared: dict[str, object] = {}
    exec(program.partition("async def ")[0], declared)  # noqa: S102 - our own documentation
    machine = declared["machine"]
    assert isinstance(machine, Machine)
    assert diagram.strip() == machine.mermaid()
