"""What an endpoint's failure means: whether to retry, when, and what a person can do about it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.agent.model import ModelError, ModelRefused, ModelUnreachable
from holdfast.effects.http import read_retry_after, read_seconds
from holdfast.model.failure import storable

if TYPE_CHECKING:
    import httpx2
    import openai

_EXCERPT = 500
_PASSING = frozenset({408, 409, 425, 429})
_SERVER_ERRORS = 500
_STATUSES = range(300, 600)
_REDIRECTS = range(300, 400)
_REDIRECTED = "redirects are not followed, because the conversation is only for base_url; set it to the API's address"
_REMEDIES = {
    400: "change the request: the message says what is wrong with it",
    401: "check OPENAI_API_KEY, or api_key= of the model",
    402: "add credit to the account, then retry the task",
    403: "use a key that may use this model, or another model",
    404: "check the model's name, and that base_url ends where the endpoint's API begins, often in /v1",
    413: "the conversation is too large for the endpoint: compact the history, or store outputs as artifacts",
    422: "change the request: the message says what is wrong with it",
}
_SEE_THE_SERVER = "check that the server runs, and that base_url= or OPENAI_BASE_URL is its address"
_SEE_THE_ADDRESS = "check base_url= or OPENAI_BASE_URL, and the network"
_OUT_OF_CREDIT = "insufficient_quota"


def of_status(error: openai.APIStatusError) -> ModelError:
    """Read an error response. Some endpoints repeat the key in it; ``storable`` masks it."""
    message = storable(_message(error.body) or error.response.text, _EXCERPT)
    return _sorted(error.status_code, error.code, message, _retry_after(error.response.headers))


def of_event(error: Any) -> ModelError:  # noqa: ANN401 - whatever JSON an endpoint sends
    """Read an error that comes as an event of a stream: the HTTP status was already 200."""
    code = error.get("code") if isinstance(error, dict) else None
    status = code if type(code) is int and code in _STATUSES else None
    return _sorted(status, code, storable(_message(error), _EXCERPT), None)


def of_transport(error: Exception, where: str) -> ModelError:
    """Read what happened to the connection: refused, reset, closed too early."""
    reason = error.__cause__ or error
    why = storable(str(reason), _EXCERPT) or type(reason).__name__
    return ModelError(f"the connection to {where} failed ({why}); no complete reply came")


def of_no_connection(error: Exception, base_url: httpx2.URL, *, within: float) -> ModelUnreachable:
    """Read why there is no connection: nothing listens there, the name is unknown, the certificate is not accepted."""
    import httpx2  # noqa: PLC0415 - loaded together with the client

    reasons = list(_reasons(error))
    where = shown_url(base_url)
    if any(isinstance(one, httpx2.ConnectTimeout) for one in reasons):
        why, remedy = f"no connection within {within:g} s", _SEE_THE_SERVER
    elif any(isinstance(one, ConnectionRefusedError) for one in reasons):
        why, remedy = "the connection was refused: nothing listens there", _SEE_THE_SERVER
    elif any(isinstance(one, socket.gaierror) for one in reasons):
        why, remedy = f"the name {base_url.host} cannot be resolved", _SEE_THE_ADDRESS
    else:  # such as a certificate, or https for an endpoint that speaks http
        why, remedy = storable(str(reasons[-1]), _EXCERPT) or type(reasons[-1]).__name__, _SEE_THE_ADDRESS
    return ModelUnreachable(f"cannot reach {where}: {why}; {remedy}")


def shown_url(url: httpx2.URL) -> str:
    """Return an address for people: without a user's name, a password or a query."""
    return str(url.copy_with(username=None, password=None, query=None, fragment=None)).rstrip("/")


def _reasons(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, the innermost last."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def of_unreadable(error: Exception, where: str) -> ModelError:
    """Read the error of a library about an answer that it cannot read."""
    why = storable(f"{type(error).__name__}: {error}", _EXCERPT)
    return ModelError(f"the answer of {where} cannot be read ({why}); no complete reply came")


def names_parameter(error: openai.APIStatusError, name: str) -> bool:
    """Return whether the endpoint's error names this parameter, anywhere in its answer."""
    return name in error.response.text


def _sorted(status: int | None, code: object, message: str, retry_after: float | None) -> ModelError:
    answered = f"the endpoint answered {status}: {message}" if status else f"the endpoint stopped: {message}"
    if code == _OUT_OF_CREDIT:  # comes as 429, but waiting does not help
        return ModelRefused(f"{answered}; {_REMEDIES[402]}", status=status)
    if status is None or status in _PASSING or status >= _SERVER_ERRORS:
        return ModelError(answered, status=status, retry_after=retry_after)
    if status in _REDIRECTS:  # a proxy may also redirect while its endpoint is down
        return ModelError(f"{answered}; {_REDIRECTED}", status=status, retry_after=retry_after)
    remedy = _REMEDIES.get(status, "the endpoint will not answer this request")
    return ModelRefused(f"{answered}; {remedy}", status=status)


def _message(body: object) -> str:
    """Return the endpoint's own message; a body in another form than OpenAI's is shown as it is."""
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"])
    try:
        return body if isinstance(body, str) else "" if body is None else json.dumps(body)
    except (ValueError, RecursionError):
        return "in a form that cannot be shown"


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Return the seconds to wait, from OpenAI's own header, which is finer, or from the standard one."""
    finer = read_seconds(headers.get("retry-after-ms", ""), in_one=1000)
    return read_retry_after(headers.get("retry-after", ""), datetime.now(UTC)) if finer is None else finer
