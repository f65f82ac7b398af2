"""Every code block in the README and the docs is run, and every other block is what its language says it is."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, Block, PageError, blocks, title

RUN = ("console", "python", "sh")
READ = {"json": json.loads, "toml": tomllib.loads}
SHOWN = ("ini", "mermaid", "text", "yaml")
LANGUAGES = sorted([*RUN, *READ, *SHOWN])

SNIPPETS = [
    pytest.param(block, id=f"{title(page)}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks(page, "python"))
    if block.file is None  # a file: its page's commands use it
]


@pytest.mark.parametrize("block", SNIPPETS)
def test_a_snippet_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Behind as many empty lines as there are above it, so that a traceback names the line of the page.
    code = "\n" * block.line + block.body
    compiled = compile(code, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(compiled, {"__name__": "__main__"})  # noqa: S307 - our own documentation
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_block_says_its_language(page: Path) -> None:
    check_page(page)


def check_page(page: Path) -> None:
    for block in blocks(page):
        check_block(block)


def check_block(block: Block) -> None:
    if block.language not in LANGUAGES:
        raise PageError(f"{block.where}: {block.language or 'no language'!r}; a block is one of {', '.join(LANGUAGES)}")
    if block.file is not None and block.language in {"console", "sh"}:
        raise PageError(f"{block.where}: commands are run, not written to a file")
    if block.file is None and block.language in READ:
        try:
            READ[block.language](block.body)
        except ValueError as error:
            raise PageError(f"{block.where}: {error}") from error


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("```\nx\n```\n", "no language"),
        ("\n```ruby\nx\n```\n", "page.md:2: 'ruby'"),
        ("```toml\nx =\n```\n", "page.md:1"),
        ("```json\n{\n```\n", "page.md:1"),
        ("```sh file=x\ntrue\n```\n", "commands are run"),
        ("```python wide\nx\n```\n", "only file=NAME"),
        ("```python file=../x.py\nx\n```\n", "outside"),
        ("```python file=/x.py\nx\n```\n", "outside"),
        ("```text\nx\n", "no end"),
        ("- x\n  ```text\n  x\n  ```\n", "page.md:2: a block begins with"),
    ],
)
def test_what_is_not_a_block_is_refused(text: str, wrong: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(PageError, match=wrong):
        check_page(page)


def test_a_file_may_be_of_any_language_and_need_not_be_parsed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```toml file=holdfast.toml\nx =\n```\n", encoding="utf-8")
    (block,) = blocks(page)
    check_block(block)
    assert (block.file, block.body) == ("holdfast.toml", "x =\n")
