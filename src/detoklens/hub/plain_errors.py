"""What went wrong on the way to the hub? One line that says what to do, for each way it can."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from detoklens.errors import HubError
from detoklens.hub.answers import AnswerError, RefusedError
from detoklens.hub.pace import GivenUpError
from detoklens.hub.repository import Repository

Answer = TypeVar("Answer")


class MissingRevisionError(HubError):
    """The repository is there, the asked branch, tag or commit is not."""


def transport_error() -> type[Exception]:
    """The base of all that a connection raises: httpx's or httpx2's, whichever huggingface_hub is built on."""
    from huggingface_hub.errors import HfHubHTTPError

    return next(kind for kind in HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError")


def asked_twice(ask: Callable[[], Answer]) -> Answer:
    """The answer, at the second attempt if need be: a connection kept open may just have been closed over there."""
    try:
        return ask()
    except transport_error():
        return ask()


@contextmanager
def plain_errors(repository: Repository, revision: str | None) -> Iterator[None]:
    """Turn whatever the hub answers, or the way to it raises, into one HubError."""
    from huggingface_hub import errors

    try:
        yield
    except errors.HFValidationError as error:
        raise HubError(_no_name_line(repository)) from error
    except RefusedError as error:
        kind = MissingRevisionError if error.code == "RevisionNotFound" else HubError
        raise kind(_refusal_line(error, repository, revision)) from error
    except AnswerError as error:
        raise HubError(_unusable_line(error, repository)) from error
    except GivenUpError as error:
        again = "run the same again to continue from what has arrived"
        raise HubError(f"{first_line(error)}; {again}, or {repository.instead}") from error
    except (errors.OfflineModeIsEnabled, transport_error()) as error:
        raise HubError(_unreachable_line(error, repository)) from error


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _no_name_line(repository: Repository) -> str:
    return (
        f"{repository.repo_id!r} is neither a local folder nor a {repository.kind}'s name on the hub (such as gpt2 or "
        "openai-community/gpt2-xl); check the spelling"
    )


def _unusable_line(error: AnswerError, repository: Repository) -> str:
    from huggingface_hub import constants

    return (
        f"{repository}: an answer of {constants.ENDPOINT} can't be used: {first_line(error)}; "
        f"check HF_ENDPOINT, try again later, or {repository.instead}"
    )


def _refusal_line(error: RefusedError, repository: Repository, revision: str | None) -> str:
    from huggingface_hub import constants

    if error.status in (401, 403):
        return (
            f"{repository}: the hub refuses access (HTTP {error.status}), the {repository.kind} is gated, private or "
            f"misspelt: accept its licence at {constants.ENDPOINT}/{repository}, then log in with `hf auth login` or "
            "set HF_TOKEN"
        )
    if error.code == "RevisionNotFound":
        return f"{repository} has no revision {revision!r}; see {constants.ENDPOINT}/{repository}/tree/main"
    if error.code == "EntryNotFound":
        return f"{repository} has no {error.url.rpartition('/')[2]} on the hub; give another {repository.kind}"
    if error.status == 404:
        return (
            f"there is no {repository.kind} {repository.repo_id!r} on {constants.ENDPOINT} (HTTP 404); check the name, "
            f"or {repository.instead}"
        )
    return (
        f"{repository}: {constants.ENDPOINT} answers with HTTP {error.status}; try again later, or {repository.instead}"
    )


def _unreachable_line(error: BaseException, repository: Repository) -> str:
    from huggingface_hub import constants

    return (
        f"can't reach {constants.ENDPOINT} for {repository} ({first_line(error)}); check the connection, "
        f"{repository.instead}, or set HF_HUB_OFFLINE=1 to use what is cached"
    )
