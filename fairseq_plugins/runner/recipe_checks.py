"""Check of a composed recipe by fairseq's types and ranges of its options, before training."""

from collections.abc import Mapping
from typing import Any

from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fairseq_plugins.common.errors import OptionError
from fairseq_plugins.common.short_errors import invalid_option
from fairseq_plugins.common.suggestions import did_you_mean
from fairseq_plugins.modules.bounds import check_numbers
from fairseq_plugins.modules.training_checks import check_options
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
    registries = {name: entry["registry"] for name, entry in REGISTRIES.items()}
    registries |= {"task": TASK_REGISTRY, "model": MODEL_DATACLASS_REGISTRY}
    for section in registries.keys() & {*SECTIONS}:
        name = str(config[section]._name)
        if name not in registries[section]:
            raise OptionError(
                f"`{section}._name` must be a name that fairseq knows, but is {name!r}."
                f"{did_you_mean(name, registries[section])}"
            )
    check_numbers(config.model, config.model._name)
    check_options(config)
