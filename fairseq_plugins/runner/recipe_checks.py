"""Check of a composed recipe by fairseq's types and ranges of its options, before training."""

from collections.abc import Mapping
from typing import Any

from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.short_errors import invalid_option
from fairseq_plugins.modules.bounds import check_numbers
from fairseq_plugins.modules.training_checks import check_ranges
from fairseq_plugins.records.recipe import SECTIONS


def check_recipe(recorded: Mapping[str, Any]) -> None:
    """Check a recorded configuration as fairseq does when its training starts.

    Raises OptionError: naming an option that is unknown, of another type or out of its range.
    """
    try:
        config = OmegaConf.merge(FairseqConfig, {name: recorded[name] for name in SECTIONS})
        add_defaults(config)
    except OmegaConfBaseException as error:
        raise OptionError(invalid_option(error)) from None
    check_numbers(config.model, config.model._name)
    check_ranges(config)
