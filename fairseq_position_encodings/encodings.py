"""Position encodings: the public names of `fairseq_plugins.encodings`."""

from fairseq_plugins.encodings import *  # noqa: F403
from fairseq_plugins.encodings import __all__ as __all__
