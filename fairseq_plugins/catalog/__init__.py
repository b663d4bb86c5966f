"""``fairseq-pe encodings [NAME]``: the catalogue of all encodings, read from the registry."""

from fairseq_plugins.catalog.command import get_parser as get_parser
from fairseq_plugins.catalog.command import main as main
