"""``python -m fairseq_plugins encodings [NAME]``: what there is, read from the registry."""

from fairseq_plugins.catalog.command import main as main
