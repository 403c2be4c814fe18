"""What went wrong on the way to the hub? One line that says what to do, for each way it can."""

from collections.abc import Iterator
from contextlib import contextmanager

from detoklens.errors import CheckpointError


def transport_error() -> type[Exception]:
    """The base of all that a connection raises: httpx's or httpx2's, whichever huggingface_hub is built on."""
    from huggingface_hub.errors import HfHubHTTPError

    return next(kind for kind in HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError")


@contextmanager
def plain_errors(repo_id: str, revision: str | None) -> Iterator[None]:
    """Turn whatever huggingface_hub and its connection raise inside into one CheckpointError."""
    from huggingface_hub import errors

    try:
        yield
    except errors.HFValidationError as error:
        raise CheckpointError(
            f"{repo_id!r} is neither a local folder nor a model's name on the hub (such as gpt2 or "
            "openai-community/gpt2-xl); check the spelling"
        ) from error
    except errors.HfHubHTTPError as error:
        raise CheckpointError(_answer_line(error, repo_id, revision)) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, transport_error()) as error:
        cause = error.__cause__
        if isinstance(cause, errors.HfHubHTTPError):
            raise CheckpointError(_answer_line(cause, repo_id, revision)) from error
        raise CheckpointError(_unreachable_line(cause or error, repo_id)) from error


@contextmanager
def plain_disk_errors() -> Iterator[None]:
    """Turn a full, read-only or unreadable disk under the caches into one CheckpointError."""
    try:
        yield
    except OSError as error:
        where = f" at {error.filename}" if error.filename else ""
        raise CheckpointError(
            f"the hub's cache can't be used ({error.strerror or error}{where}); make room, or set HF_HOME to "
            "another folder"
        ) from error


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _answer_line(error: Exception, repo_id: str, revision: str | None) -> str:
    from huggingface_hub import constants, errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return (
            f"{repo_id}: the hub refuses access (HTTP {status}), the model is gated, private or misspelt: "
            f"accept its licence at {constants.ENDPOINT}/{repo_id}, then log in with `hf auth login` or set HF_TOKEN"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repo_id} has no revision {revision!r}; see {constants.ENDPOINT}/{repo_id}/tree/main"
    if isinstance(error, errors.EntryNotFoundError):
        name = str(getattr(error, "response").url).rpartition("/")[2]  # noqa: B009
        return f"{repo_id} has no {name} on the hub, so it is no checkpoint that can be read; give another model"
    if status == 404:
        return f"there is no model {repo_id!r} on {constants.ENDPOINT}; check the name, or give a local folder"
    return f"{repo_id}: {constants.ENDPOINT} answers with HTTP {status}; try again later, or give a local folder"


def _unreachable_line(error: BaseException, repo_id: str) -> str:
    from huggingface_hub import constants

    return (
        f"can't reach {constants.ENDPOINT} for {repo_id} ({first_line(error)}); check the connection, give a local "
        "folder, or set HF_HUB_OFFLINE=1 to use what is cached"
    )
