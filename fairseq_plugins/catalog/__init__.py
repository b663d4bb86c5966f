"""``fairseq-pe encodings [NAME]``: what there is, read from the registry."""

from fairseq_plugins.catalog.command import get_parser as get_parser
from fairseq_plugins.catalog.command import main as main
