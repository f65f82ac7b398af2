"""Settings: HOLDFAST_* variables, then the nearest holdfast.toml, then defaults; mistakes are refused in words."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Holdfast, InvalidValue
from holdfast.model.worker import WorkerState
from holdfast.settings import (
    SETTINGS,
    Setting,
    Settings,
    current_settings,
    find_file,
    store_options,
    unknown_variables,
)

TEXTS = {
    "database_url": ("postgresql://here/one", "postgresql://here/one"),
    "schema": ("agents", "agents"),
    "prepare": ("off", False),
    "listen_url": ("postgresql://there/one", "postgresql://there/one"),
    "application": ("shop:hold", "shop:hold"),
    "user": ("anna", "anna"),
    "worker.queues": ("deploys, default", ("deploys", "default")),
    "worker.concurrency": ("7", 7),
    "worker.residents": ("9", 9),
    "worker.lease": ("12.5", 12.5),
    "worker.grace": ("0", 0.0),
    "worker.label": ("nightly", "nightly"),
    "serve.host": ("10.0.0.5", "10.0.0.5"),
    "serve.port": ("0", 0),
    "serve.allow_hosts": ("holdfast.example.com, 10.0.0.5", ("holdfast.example.com", "10.0.0.5")),
}
"""For every setting: the text of a variable, and what it means."""

IN_FILE = {
    "worker.queues": '["deploys", "default"]',
    "worker.concurrency": "7",
    "worker.residents": "9",
    "worker.lease": "12.5",
    "worker.grace": "0",
    "serve.port": "0",
    "serve.allow_hosts": '["holdfast.example.com", "10.0.0.5"]',
}
"""How a file has it, where that is not a quoted text."""


def write(folder: Path, text: str) -> Path:
    file = folder / "holdfast.toml"
    file.write_text(text, encoding="utf-8")
    return file


def line(name: str, value: str | None = None) -> str:
    """Return a file that sets one thing."""
    section, _, own = name.rpartition(".")
    written = value or IN_FILE.get(name, f'"{TEXTS[name][0]}"')
    return (f"[{section}]\n" if section else "") + f"{own} = {written}\n"


def test_there_is_an_example_of_every_setting() -> None:
    assert set(TEXTS) == {setting.name for setting in SETTINGS}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: str(setting.name))
def test_every_setting_is_read_from_both_places_and_the_variable_wins(setting: Setting, tmp_path: Path) -> None:
    text, meant = TEXTS[setting.name]
    nothing = Settings({}, None)
    assert (nothing[setting.name], nothing.is_set(setting.name)) == (setting.default, False)
    from_variable = Settings({setting.variable: text}, None).values[setting.name]
    assert (from_variable.value, from_variable.origin) == (meant, setting.variable)
    file = write(tmp_path, line(setting.name))
    from_file = Settings({}, file).values[setting.name]
    assert (from_file.value, from_file.origin) == (meant, str(file))
    numbers = {"worker.concurrency", "worker.residents", "worker.lease", "worker.grace", "serve.port"}
    other = "8" if setting.name in numbers else "on" if setting.name == "prepare" else "other"
    both = Settings({setting.variable: other}, file)
    assert both.values[setting.name].origin == setting.variable
    assert both[setting.name] == setting.read(other) != meant
    assert Settings({setting.variable: ""}, file).values[setting.name] == from_file  # empty is not set


@given(
    said=st.dictionaries(st.sampled_from(SETTINGS), st.sets(st.sampled_from(["variable", "file"]))),
)
def test_each_setting_is_the_first_that_is_given(
    said: dict[Setting, set[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    in_file = [setting for setting, places in said.items() if "file" in places]
    # A section begins where its first setting stands, so what is in none has to come before.
    lines = [line(setting.name) for setting in in_file if "." not in setting.name]
    for section in ("worker", "serve"):
        inner = [setting.name for setting in in_file if setting.name.startswith(f"{section}.")]
        lines += [f"[{section}]\n"] * bool(inner) + [line(name).partition("\n")[2] for name in inner]
    file = write(tmp_path_factory.mktemp("any"), "".join(lines))
    environment = {setting.variable: TEXTS[setting.name][0] for setting, places in said.items() if "variable" in places}
    read = Settings(environment, file)
    for setting in SETTINGS:
        places = said.get(setting, set())
        expected = setting.variable if "variable" in places else str(file) if places else "default"
        assert read.values[setting.name].origin == expected
        default = f"sqlite:///{file.parent}/holdfast.db" if setting.name == "database_url" else setting.default
        assert read[setting.name] == (TEXTS[setting.name][1] if places else default)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('databse_url = "x"', "databse_url, which is not a setting; did you mean database_url?"),
        ("[worker]\nleas = 3", "worker.leas, which is not a setting; did you mean worker.lease?"),
        ("lease = 3", "lease, which is not a setting; did you mean worker.lease?"),
        ('[worker]\nuser = "x"', "worker.user, which is not a setting; did you mean user?"),
        ("zzz = 3", "zzz, which is not a setting; there are: database_url, schema"),
        ("[wroker]\nlease = 3", "section [wroker], which Holdfast does not have; did you mean worker?"),
        ("[zzz]\n", "section [zzz], which Holdfast does not have; there are: worker, serve"),
        ("worker = 3", "sets worker to 3; it is a section, write [worker] and its settings below"),
        ("[database_url]\nx = 3", "section [database_url], which is a setting; write database_url = ... at the top"),
        ("[worker.more]\nx = 3", "worker.more, which is not a setting"),
        ('database_url = "', "is not valid TOML"),
        ("[worker]\nlease = 3\nlease = 4", "is not valid TOML"),
    ],
)
def test_what_cannot_be_meant_in_a_file_is_refused(text: str, words: str, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    with pytest.raises(InvalidValue) as refused:
        Settings({}, file)
    assert words in str(refused.value)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


NO_TEXTS = ["3", "true", '""', '"  "', "[]", "{}"]
NO_COUNTS = ["true", "0", "-1", "2.5", '"many"', "[1]", "inf", "1979-05-27"]
NO_PORTS = ["true", "-1", "65536", "2.5", '"http"', "[1]"]
NO_SECONDS = ["true", "-0.1", '"long"', "nan", "inf", "[1]"]
NO_NAMES = ["true", "3", "[]", "[1]", '[""]', '"a,,b"', '""']


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in ("database_url", "schema", "application", "user", "worker.label", "serve.host")
        for value in NO_TEXTS
    ]
    + [("worker.concurrency", value) for value in NO_COUNTS]
    + [(name, value) for name in ("worker.lease", "worker.grace") for value in NO_SECONDS]
    + [("serve.port", value) for value in NO_PORTS]
    + [(name, value) for name in ("worker.queues", "serve.allow_hosts") for value in NO_NAMES],
)
def test_a_wrong_type_is_refused(name: str, value: str, tmp_path: Path) -> None:
    file = write(tmp_path, line(name, value))
    # An inline table under the name of a setting outside of a section looks like a section of that name.
    with pytest.raises(InvalidValue, match=rf"{name} in .*holdfast.toml (is .*|is not valid); give|section \[{name}\]"):
        Settings({}, file)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("HOLDFAST_WORKER_CONCURRENCY", "2.5"),
        ("HOLDFAST_WORKER_CONCURRENCY", "true"),
        ("HOLDFAST_WORKER_LEASE", "nan"),
        ("HOLDFAST_WORKER_QUEUES", "a,,b"),
        ("HOLDFAST_DATABASE_URL", " "),
    ],
)
def test_a_wrong_variable_is_refused_by_name(variable: str, text: str) -> None:
    with pytest.raises(InvalidValue, match=f"{variable} (is '{text}'|is not valid); give"):
        Settings({variable: text}, None)


def test_queues_are_a_list_or_a_text_with_commas(tmp_path: Path) -> None:
    for written in ('["a", " b ", "a"]', '"a, b,a"'):
        assert Settings({}, write(tmp_path, line("worker.queues", written)))["worker.queues"] == ("a", "b")
    assert Settings({"HOLDFAST_WORKER_QUEUES": "a, b,a"}, None)["worker.queues"] == ("a", "b")


def test_space_around_a_text_is_removed(tmp_path: Path) -> None:
    assert Settings({"HOLDFAST_DATABASE_URL": " memory://\n"}, None)["database_url"] == "memory://"
    assert Settings({}, write(tmp_path, 'user = " anna "'))["user"] == "anna"


def test_a_whole_number_of_seconds_will_do(tmp_path: Path) -> None:
    assert Settings({}, write(tmp_path, line("worker.lease", "12")))["worker.lease"] == 12.0


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sqlite:///agents.db", "sqlite:///{folder}/agents.db"),
        ("sqlite:///data/agents.db", "sqlite:///{folder}/data/agents.db"),
        ("sqlite:///a%20b.db?mode=ro", "sqlite:///{folder}/a%20b.db?mode=ro"),
        ("json:///data", "json:///{folder}/data"),
        ("sqlite:////var/agents.db", "sqlite:////var/agents.db"),
        ("sqlite://agents.db", "sqlite://agents.db"),
        ("sqlite:///", "sqlite:///"),
        ("memory://", "memory://"),
        ("postgresql://anna:x@here/one", "postgresql://anna:x@here/one"),
        ("postgresql:///one", "postgresql:///one"),
    ],
)
def test_a_relative_path_is_taken_from_the_folder_of_the_file(written: str, meant: str, tmp_path: Path) -> None:
    file = write(tmp_path, f'database_url = "{written}"')
    assert Settings({}, file)["database_url"] == meant.format(folder=tmp_path.as_posix())


async def test_a_folder_with_any_name_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "50% of #1?"
    folder.mkdir()
    write(folder, 'database_url = "sqlite:///agents.db"')
    monkeypatch.chdir(folder)
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    async with Holdfast():
        pass
    assert (folder / "agents.db").is_file()
    assert [found.name for found in tmp_path.iterdir()] == [folder.name]


def test_a_variable_is_relative_to_where_one_stands(tmp_path: Path) -> None:
    file = write(tmp_path, line("user"))
    assert Settings({"HOLDFAST_DATABASE_URL": "sqlite:///a.db"}, file)["database_url"] == "sqlite:///a.db"


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    deep = tmp_path / "one" / "two"
    deep.mkdir(parents=True)
    upper = write(tmp_path, "")
    assert find_file(deep) == upper
    nearer = write(tmp_path / "one", "")
    assert find_file(deep) == nearer


def test_a_holdfast_toml_that_is_not_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").mkdir()
    (inner := tmp_path / "inner").mkdir()
    (inner / "holdfast.toml").symlink_to(tmp_path / "nowhere")
    for folder in (tmp_path, inner):
        found = find_file(folder)
        assert found == folder / "holdfast.toml"
        with pytest.raises(InvalidValue, match="cannot be read"):
            Settings({}, found)


def test_a_folder_that_may_not_be_searched_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upper = write(tmp_path, "")
    asked = Path.exists
    refused: list[Path] = []

    def exists(path: Path, **options: Any) -> bool:  # noqa: ANN401
        if path.parent.name == "closed":
            refused.append(path)
            raise PermissionError(13, "Permission denied")
        return asked(path, **options)

    monkeypatch.setattr(Path, "exists", exists)
    assert find_file(tmp_path / "closed" / "inner") == upper
    assert refused


def test_a_file_that_begins_with_a_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_bytes(b'\xef\xbb\xbfuser = "anna"\n')
    assert Settings({}, tmp_path / "holdfast.toml")["user"] == "anna"


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_bytes(b'user = "\xff"\n')
    with pytest.raises(InvalidValue, match="is not valid TOML"):
        Settings({}, tmp_path / "holdfast.toml")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"cannot be read: Is a directory; fix its permissions, or remove it"):
        Settings({}, tmp_path)


def test_without_a_working_directory_there_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert current_settings().file is None


def test_the_library_goes_by_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    inner = tmp_path / "inner"
    inner.mkdir()
    write(tmp_path, 'database_url = "sqlite:///agents.db"')
    for folder in (tmp_path, inner):
        monkeypatch.chdir(folder)
        assert Holdfast().url == f"sqlite:///{tmp_path.as_posix()}/agents.db"
    assert Holdfast("memory://").url == "memory://"
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "memory://")
    assert Holdfast().url == "memory://"


def test_only_postgresql_has_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SCHEMA", "PREPARE", "LISTEN_URL"):
        monkeypatch.delenv(f"HOLDFAST_{name}", raising=False)
    assert store_options("postgresql://here/one") == {}
    write(tmp_path, 'schema = "agents"')
    assert store_options("postgresql://here/one") == {"schema": "agents"}
    assert store_options("sqlite:///a.db") == {}
    write(tmp_path, "prepare = false")
    assert store_options("postgresql://here/one") == {"prepare": False}
    monkeypatch.setenv("HOLDFAST_PREPARE", "on")
    monkeypatch.setenv("HOLDFAST_LISTEN_URL", "postgresql://there/one")
    assert store_options("postgresql://here/one") == {"prepare": True, "listen_url": "postgresql://there/one"}
    # What stands in a URL was written for that store.
    assert store_options("postgresql://here/one?prepare=false&listen_url=postgresql%3A%2F%2Fhere%2Fone") == {}


def test_unknown_variables_are_named() -> None:
    environment = {
        "HOLDFAST_DATABASE": "x",
        "HOLDFAST_LEASE": "3",
        "HOLDFAST_URL": "x",
        "HOLDFAST_WORKER_LEESE": "3",
        "HOLDFAST_QQQQ": "y",
        "HOLDFAST_API_TOKEN": "secret",
        "HOLDFAST_API_TOKEN_CI": "read:secret",
        "HOLDFAST_API_TOKENS": "x",
        "HOLDFAST_USER": "anna",
        "PATH": "z",
    }
    assert unknown_variables(environment) == {
        "HOLDFAST_API_TOKENS": "HOLDFAST_API_TOKEN",
        "HOLDFAST_DATABASE": "HOLDFAST_DATABASE_URL",
        "HOLDFAST_LEASE": "HOLDFAST_WORKER_LEASE",
        "HOLDFAST_QQQQ": None,
        "HOLDFAST_URL": "HOLDFAST_DATABASE_URL",
        "HOLDFAST_WORKER_LEESE": "HOLDFAST_WORKER_LEASE",
    }


async def test_the_settings_of_a_worker_reach_the_worker_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the code says goes before the variables, and those before the file."""
    monkeypatch.chdir(tmp_path)
    written = '[worker]\nqueues = ["deploys"]\nconcurrency = 3\nresidents = 0\nlease = 7\nlabel = "night"\n'
    (tmp_path / "holdfast.toml").write_text(written, encoding="utf-8")
    monkeypatch.setenv("HOLDFAST_WORKER_CONCURRENCY", "4")

    async def seen(hold: Holdfast) -> tuple[str, float, Any, Any]:
        [worker] = [one for one in await hold.store.workers() if one.state is WorkerState.LIVE]
        return worker.label, worker.lease, worker.details["queues"], worker.details["concurrency"]

    async with Holdfast("memory://") as hold:
        async with hold.worker():
            assert await seen(hold) == ("night", 7.0, ["deploys"], 4)
        async with hold.worker(queues="mail", concurrency=2, residents=5, lease=9, grace=1, label="day"):
            assert await seen(hold) == ("day", 9.0, ["mail"], 2)
    with pytest.raises(InvalidValue, match="at least 0"):
        Settings({"HOLDFAST_WORKER_RESIDENTS": "-1"}, None)


def test_they_reach_the_worker_of_blocking_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WORKER_CONCURRENCY", "0")
    with Holdfast("memory://").sync as hold, pytest.raises(InvalidValue, match="HOLDFAST_WORKER_CONCURRENCY"):
        hold.worker()
