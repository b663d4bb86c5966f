"""The criterions that register with fairseq; importing this package registers them."""

from fairseq_plugins.criterions import squad as squad
