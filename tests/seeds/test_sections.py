"""Every section has one test that is named after it, and both pages show the table of them."""

import pytest

from tests.seeds.chapters import CHAPTERS, ROOT, name_of_test, read_proofs
from tests.seeds.page import VERSIONS, Version, written


def test_every_section_has_a_test_that_is_named_after_it() -> None:
    proofs = read_proofs()
    assert set(proofs) == {(chapter.number, name) for chapter in CHAPTERS for name in chapter.sections}
    wrong = {proof.test: name_of_test(name) for (_, name), proof in proofs.items() if proof.test != name_of_test(name)}
    assert not wrong


def test_every_example_of_the_course_names_the_section_that_it_answers() -> None:
    examples = [ROOT / f"examples/{name}.py" for name in ("disk_space", "loop_by_hand", "loop_with_steps")]
    examples += sorted((ROOT / "examples/course").glob("*.py"))
    known = [f'"""{chapter.number}, "{one.name}": ' for chapter in CHAPTERS for one in chapter.headings]
    for path in examples:
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        assert any(first.startswith(one) for one in known), f"{path.name}: {first}"


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.page.name)
def test_the_page_shows_the_tests(version: Version) -> None:
    text = version.page.read_text(encoding="utf-8")
    assert text == written(version, text), "run: python -m tests.seeds.page"
