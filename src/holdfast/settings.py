"""Settings: values outside of code, and where each comes from: flags, HOLDFAST_* variables, holdfast.toml, defaults.

The library and the command read the same ones, so that a worker, a script and ``holdfast list`` beside them never look
at different stores.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

from holdfast.model.errors import InvalidValue
from holdfast.redaction import know_url, redacted
from holdfast.store.url import read_switch, split_options

N = TypeVar("N", int, float)

FILE: Final = "holdfast.toml"
PREFIX: Final = "HOLDFAST_"
DEFAULT_URL: Final = "sqlite:///holdfast.db"
DEFAULT_SCHEMA: Final = "holdfast"
DEFAULT_LEASE: Final = 30.0
DEFAULT_GRACE: Final = 20.0
DEFAULT_CONCURRENCY: Final = 100
DEFAULT_RESIDENTS: Final = 1_000
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8787
_HIGHEST_PORT: Final = 65_535

NOT_SETTINGS: Final = frozenset({"HOLDFAST_API_TOKEN", "HOLDFAST_MODEL"})
"""Variables with our prefix that are read elsewhere and must not be in a file: a secret, an example's choice."""
_NOT_SETTINGS_EITHER: Final = "HOLDFAST_API_TOKEN_"
"""The rest of such a variable is a token's name, which the operator of the server chose."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Something that can be set, under one name everywhere: ``worker.lease`` is also HOLDFAST_WORKER_LEASE."""

    name: str
    read: Callable[[Any], Any]
    """Turns what a file holds, or the text of a variable, into the value; raises ValueError with a remedy."""
    default: Any
    help: str

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        return PREFIX + self.name.upper().replace(".", "_")


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a setting, and where it comes from."""

    setting: Setting
    value: Any
    origin: str
    """In words: ``default``, ``HOLDFAST_DATABASE_URL``, or the path of the file."""


def _text(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ValueError("give a text that is not empty")
    return given.strip()


def _number(given: object) -> float:
    number = _converted(float, given)
    if number is None or not 0 <= number < float("inf"):
        raise ValueError("give a number of seconds")
    return number


def _count(given: object) -> int:
    return _at_least(1, given)


def _whole(given: object) -> int:
    return _at_least(0, given)


def _at_least(lowest: int, given: object) -> int:
    count = _converted(int, given)
    if count is None or count < lowest:
        raise ValueError(f"give a whole number of at least {lowest}")
    return count


def _converted(kind: type[N], given: object) -> N | None:
    """Return a number of a file, or the text of a variable, as a number; None for anything else."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return None
    try:
        number = kind(given)
    except (ValueError, OverflowError):
        return None
    return number if isinstance(given, str) or number == given else None


def _port(given: object) -> int:
    port = _converted(int, given)
    if port is None or not 0 <= port <= _HIGHEST_PORT:
        raise ValueError(f"give a port: a whole number up to {_HIGHEST_PORT}, or 0 for any that is free")
    return port


def _names(given: object) -> tuple[str, ...]:
    listed = given.split(",") if isinstance(given, str) else given
    if not isinstance(listed, list) or not listed or not all(isinstance(name, str) and name.strip() for name in listed):
        raise ValueError('give a list of names: ["default", "deploys"], or default,deploys in a variable')
    return tuple(dict.fromkeys(name.strip() for name in listed))


SETTINGS: Final = (
    Setting("database_url", _text, DEFAULT_URL, "The store: sqlite:///file.db, postgresql://..., json:///folder"),
    Setting("schema", _text, DEFAULT_SCHEMA, "PostgreSQL only: the schema that holds the store"),
    Setting("prepare", read_switch, None, "PostgreSQL only: prepare statements; by default, unless a pooler answers"),
    Setting("listen_url", _text, None, "PostgreSQL only: the server's own address, where database_url is a pooler's"),
    Setting("application", _text, None, "Where the application's Holdfast object is: module:attribute"),
    Setting("user", _text, None, "Who decides, approves and cancels; by default your login name"),
    Setting("worker.queues", _names, None, "Which queues a worker takes tasks from; by default those of its tasks"),
    Setting("worker.concurrency", _count, DEFAULT_CONCURRENCY, "How many tasks a worker runs at the same time"),
    Setting("worker.residents", _whole, DEFAULT_RESIDENTS, "How many more may only wait on it for something outside"),
    Setting("worker.lease", _number, DEFAULT_LEASE, "Seconds of silence after which a worker's tasks go to others"),
    Setting("worker.grace", _number, DEFAULT_GRACE, "Seconds in which tasks may finish once a worker is to stop"),
    Setting("worker.label", _text, "worker", "A worker's name, for people"),
    Setting("serve.host", _text, DEFAULT_HOST, "The address on which `holdfast serve` listens"),
    Setting("serve.port", _port, DEFAULT_PORT, "The port on which it listens"),
    Setting("serve.allow_hosts", _names, None, "Names by which clients reach it, beside those of its address"),
)

_URLS: Final = frozenset({"database_url", "listen_url"})
_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}
_SECTIONS: Final = tuple(dict.fromkeys(section for name in _BY_NAME if (section := name.rpartition(".")[0])))


class Settings:
    """Every setting with its value and origin, as the environment and the nearest holdfast.toml have it."""

    def __init__(self, environment: Mapping[str, str], file: Path | None) -> None:
        """Read all of them. Raises InvalidValue."""
        self.file = file
        written = {} if file is None else _read_file(file)
        self.values = {name: _value(setting, environment, file, written) for name, setting in _BY_NAME.items()}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - each has a type of its own
        """Return the value of a setting."""
        return self.values[name].value

    def is_set(self, name: str) -> bool:
        """Return whether it is set, by a variable or in a file."""
        return self.values[name].origin != "default"


def current_settings() -> Settings:
    """Read the environment, and the holdfast.toml of the working directory or the nearest folder above it."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the working directory was deleted
        return Settings(os.environ, None)
    return Settings(os.environ, find_file(here))


def store_options(url: str) -> dict[str, Any]:
    """Return what the settings say about how to open the store of this URL."""
    if not is_postgres(url):
        return {}
    settings, (_, written) = current_settings(), split_options(url)
    options = {name: settings[name] for name in ("schema", "prepare", "listen_url") if settings.is_set(name)}
    # Options in the URL were written for this store, and win.
    return {name: value for name, value in options.items() if getattr(written, name, None) is None}


def is_postgres(url: str) -> bool:
    """Say whether a URL names a PostgreSQL database."""
    return url.partition(":")[0].lower() in {"postgresql", "postgres"}


def find_file(folder: Path) -> Path | None:
    """Return the nearest holdfast.toml, from a folder upwards."""
    return next((found for place in (folder, *folder.parents) if _is_there(found := place / FILE)), None)


def _is_there(path: Path) -> bool:
    """Return whether the path exists. A broken link counts as well: reading it then reports the error."""
    try:
        return path.is_symlink() or path.exists()
    except PermissionError:  # a folder above that we may not read has no settings for us
        return False


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return the HOLDFAST_* variables that are not settings, each with the one that was probably meant."""
    known = {setting.variable for setting in SETTINGS} | NOT_SETTINGS
    ours = (name for name in environment if name.startswith(PREFIX) and not name.startswith(_NOT_SETTINGS_EITHER))
    unknown = sorted(name for name in ours if name not in known)
    # Compared without the prefix, which all of them share.
    own = {name.removeprefix(PREFIX): name for name in sorted(known)}
    return {name: own.get(next(iter(_close(name.removeprefix(PREFIX), own, "_")), "")) for name in unknown}


def _value(setting: Setting, environment: Mapping[str, str], file: Path | None, written: Mapping[str, Any]) -> Value:
    if environment.get(setting.variable):
        return Value(setting, _checked(setting, environment[setting.variable], setting.variable), setting.variable)
    value, origin = setting.default, "default"
    if file is not None and setting.name in written:
        value, origin = _checked(setting, written[setting.name], f"{setting.name} in {file}"), str(file)
    if file is not None and setting.name == "database_url":
        value = _beside(file, value)  # the default too: one project has one store, whatever the working directory is
    return Value(setting, value, origin)


def _checked(setting: Setting, given: object, where: str) -> Any:  # noqa: ANN401 - each has a type of its own
    for part in given if isinstance(given, list) else [given]:
        if isinstance(part, str) and "://" in part:
            know_url(part)  # a URL typed into a wrong setting is shown without its password as well
    try:
        return setting.read(given)
    except ValueError as error:
        if setting.name in _URLS:  # any part of it may be a password
            raise InvalidValue(f"{where} is not valid; {error}") from None
        raise InvalidValue(redacted(f"{where} is {given!r}; {error}")) from None


def _read_file(file: Path) -> dict[str, Any]:
    """Return the file's settings by their dotted names."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))  # some editors write a byte order mark
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidValue(f"{file} is not valid TOML: {error}") from None
    except OSError as error:
        raise InvalidValue(f"{file} cannot be read: {error.strerror}; fix its permissions, or remove it") from None
    written: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            _check_section(file, name)
            written |= {f"{name}.{part}": inner for part, inner in value.items()}
        elif name in _SECTIONS:
            raise InvalidValue(
                f"{file} sets {name} to {value!r}; it is a section, write [{name}] and its settings below"
            )
        else:
            written[name] = value
    for name in written:
        if name not in _BY_NAME:
            raise InvalidValue(f"{file} sets {name}, which is not a setting; {_meant(name, _BY_NAME)}")
    return written


def _check_section(file: Path, name: str) -> None:
    if name in _BY_NAME:
        raise InvalidValue(f"{file} has a section [{name}], which is a setting; write {name} = ... at the top")
    if name not in _SECTIONS:
        raise InvalidValue(f"{file} has a section [{name}], which Holdfast does not have; {_meant(name, _SECTIONS)}")


def _meant(name: str, known: Iterable[str]) -> str:
    """Return what was probably meant, or what there is."""
    names = list(known)
    close = _close(name, names, ".")
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"


def _close(name: str, known: Iterable[str], separator: str) -> list[str]:
    """Return what was probably meant: the same name in another section or in none, or a similar name."""
    names = list(known)
    moved = [one for one in names if f"{separator}{one}".endswith(f"{separator}{name.rpartition(separator)[2]}")]
    return moved[:1] or difflib.get_close_matches(name, names, n=1)


def _beside(file: Path, url: str) -> str:
    """Return the URL with a relative path resolved from the folder of holdfast.toml, not from the working directory."""
    if is_postgres(url):
        return url
    parts = urlsplit(url)
    path = parts.path.removeprefix("/")
    if parts.scheme not in {"sqlite", "json"} or parts.netloc or not path or path.startswith("/"):
        return url
    folder = quote(file.parent.absolute().as_posix(), safe="/:").rstrip("/")
    query = f"?{parts.query}" if parts.query else ""  # stays, so that the store refuses it as anywhere else
    return f"{parts.scheme}:///{folder}/{path}{query}"
