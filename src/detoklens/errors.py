"""What can go wrong that is not a bug: one line that says what was found and what to do.

On the command line a DetokLensError is that one line and exit code 1; anything else keeps its traceback.
"""


class DetokLensError(Exception):
    """Something the user can mend; the message is one line that says how."""


class CheckpointError(DetokLensError):
    """The checkpoint can't be read, or holds something else than it claims."""


class UnsupportedModelError(DetokLensError):
    """The checkpoint is fine, but its computation is not one that is handled exactly."""


class TokenError(DetokLensError):
    """A token, text or token id does not fit the vocabulary."""


class RangeError(DetokLensError):
    """A head, position or other index lies outside what the model has."""


class CorpusError(DetokLensError):
    """A text input can't be read as asked."""


class CountsError(DetokLensError):
    """Corpus counts are missing, damaged, or belong to another tokenizer."""


class OutputError(DetokLensError):
    """The answer can't be written where it was asked to go."""


class MissingExtraError(DetokLensError):
    """An optional part of the package is needed and not installed."""


def first_line(error: Exception) -> str:
    """What a library says of an error, as far as it fits into one line of ours; its kind where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
