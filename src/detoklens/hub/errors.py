"""One line for every way in which the hub, the connection or the cache can fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from detoklens.errors import HubError, OutputError, first_line

if TYPE_CHECKING:
    from detoklens.hub.repository import Repository

HTTPError: type[Exception] = next(kind for kind in HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError")
"""The base class of connection errors: that of httpx or httpx2, whichever huggingface_hub uses."""


class AnswerError(Exception):
    """The answer can't be used; another attempt may succeed."""


class BusyError(AnswerError):
    """The hub has a temporary problem."""


class RefusedError(Exception):
    """The hub refuses (401, 404, …); another attempt would not help."""

    def __init__(self, response: Any) -> None:
        self.status: int = response.status_code
        self.code: str = response.headers.get("X-Error-Code", "")
        self.file = str(response.request.url).rpartition("/")[2]
        super().__init__(f"HTTP {self.status}")


class TransferError(Exception):
    """The transfer was abandoned; the bytes received so far are kept."""


@contextmanager
def one_line_errors(repository: Repository, revision: str | None) -> Iterator[None]:
    """Turn errors of the hub, the connection and the cache into a HubError."""
    local = "a local folder" if repository.kind == "model" else "local files"
    try:
        yield
    except HFValidationError as error:
        raise HubError(
            f"{repository.repo_id!r} is neither a local folder nor the name of a {repository.kind} on the hub (e.g. "
            "gpt2 or openai-community/gpt2-xl); check the spelling"
        ) from error
    except RefusedError as error:
        raise HubError(_describe_refusal(error, repository, revision, local)) from error
    except AnswerError as error:
        raise HubError(
            f"{repository}: unusable answer from {constants.ENDPOINT}: {first_line(error)}; check HF_ENDPOINT, try "
            f"again later, or use {local}"
        ) from error
    except TransferError as error:
        raise HubError(f"{first_line(error)}; run the same command again to resume, or use {local}") from error
    except (OfflineModeIsEnabled, HTTPError) as error:
        raise HubError(
            f"there is no {'folder' if repository.kind == 'model' else 'file'} {repository.repo_id} here; if it is on "
            f"the hub, check the connection: {constants.ENDPOINT} can't be reached ({first_line(error)})"
        ) from error
    except (OSError, OutputError) as error:
        reason = error if isinstance(error, OSError) else error.__cause__
        raise HubError(
            f"can't use the hub's cache ({first_line(reason or error)}); free some space, or set HF_HOME to another "
            "folder"
        ) from error


def _describe_refusal(error: RefusedError, repository: Repository, revision: str | None, local: str) -> str:
    page = f"{constants.ENDPOINT}/{repository}"
    if error.status in (401, 403):
        return (
            f"{repository}: access refused (HTTP {error.status}); the {repository.kind} is gated, private or "
            f"misspelled: accept its licence at {page}, then log in with `hf auth login` or set HF_TOKEN"
        )
    if error.code == "RevisionNotFound":
        return f"{repository} has no revision {revision!r}; see {page}/tree/main"
    if error.code == "EntryNotFound":
        return f"{repository} has no {error.file} on the hub; choose another {repository.kind}"
    if error.status == 404:
        found = f"no {repository.kind} {repository.repo_id!r} on {constants.ENDPOINT} (HTTP 404)"
        return f"{found}; check the name, or use {local}"
    return f"{repository}: HTTP {error.status} from {constants.ENDPOINT}; try again later, or use {local}"
