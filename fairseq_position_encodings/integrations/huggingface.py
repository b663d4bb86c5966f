"""Models of Hugging Face: the public names of `fairseq_plugins.integrations.huggingface`."""

from fairseq_plugins.integrations.huggingface import *  # noqa: F403
from fairseq_plugins.integrations.huggingface import __all__ as __all__
