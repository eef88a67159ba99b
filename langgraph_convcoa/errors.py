"""The exceptions of the library.

Every error that a user can mend is a `ConvCoAError` whose message is one line that says what to do; the command line
prints that line and exits with code 2.
"""


class ConvCoAError(Exception):
    """Base of every error raised on purpose by this library."""


class InputError(ConvCoAError, ValueError):
    """The question, the settings or another argument cannot be used as given."""


class DocumentError(ConvCoAError):
    """A document or a folder of documents cannot be read."""


class RetrievalError(ConvCoAError):
    """The retriever cannot encode or search what it was given."""


class ModelError(ConvCoAError):
    """A chat model cannot be built or did not answer (unknown name, missing key, refused, timed out)."""


class StoreError(ConvCoAError):
    """A conversation store cannot be opened, read or written."""
