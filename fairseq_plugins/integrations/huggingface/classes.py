"""Model and configuration classes of transformers with a replaced position encoding.

Each class of the known families has a subclass: ``PositionalLlamaForCausalLM`` for
``LlamaForCausalLM``, with the ``model_type`` ``positional_llama``. Importing this package registers
them with transformers' Auto classes, so that ``AutoModelForCausalLM.from_pretrained`` finds them.
Without this package transformers rejects the unknown type instead of loading a part of the weights.
"""

import copy
from functools import cache
from typing import Any

import torch
import transformers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.modeling_utils import _CAN_RECORD_REGISTRY

from fairseq_plugins.integrations.huggingface.families import FAMILIES
from fairseq_plugins.integrations.huggingface.install import (
    build,
    install,
    installed_modules,
    rebuild_modules,
)
from fairseq_plugins.integrations.huggingface.probe import check_attention_calls, check_projections
from fairseq_plugins.integrations.huggingface.settings import KEY, EncodingSettings

PREFIX = "Positional"
# transformers' Auto classes -> their model mappings.
_AUTO_CLASSES = {
    "AutoModel": "MODEL_MAPPING",
    "AutoModelForCausalLM": "MODEL_FOR_CAUSAL_LM_MAPPING",
    "AutoModelForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING",
    "AutoModelForPreTraining": "MODEL_FOR_PRETRAINING_MAPPING",
    "AutoModelForNextSentencePrediction": "MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING",
    "AutoModelForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "AutoModelForTokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
    "AutoModelForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
    "AutoModelForMultipleChoice": "MODEL_FOR_MULTIPLE_CHOICE_MAPPING",
}


class PositionalModel(PreTrainedModel):
    """Base class of models with a replaced position encoding."""

    def __init__(self, config: Any, *args: Any, **options: Any) -> None:
        settings = EncodingSettings.of(config)
        super().__init__(config, *args, **options)
        install(self, build(self, settings), settings)

    @classmethod
    def from_pretrained(cls, *args: Any, **options: Any) -> Any:
        """Load as transformers does, but reject folders that lack weights of the encoding.

        Raises:
            ValueError: weights of the encoding are missing, or its settings are invalid.
        """
        wants_info = options.pop("output_loading_info", False)
        model, info = super().from_pretrained(*args, output_loading_info=True, **options)
        missing = sorted(name for name in info["missing_keys"] if f"{KEY}." in name)
        if missing:
            raise ValueError(
                f"{args[0] if args else options} lacks {len(missing)} weights of the position "
                f"encoding, the first is {missing[0]!r}."
            )
        rebuild_modules(model, EncodingSettings.of(model.config))
        return (model, info) if wants_info else model

    def resize_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        *args: Any,
        **options: Any,
    ) -> Any:
        """Resize the vocabulary as transformers does.

        Raises:
            ValueError: the encoding has a row for each word of the vocabulary.
        """
        modules = installed_modules(self)
        if modules is not None and modules.has_words:
            words = self.get_input_embeddings().num_embeddings
            if pad_to_multiple_of or new_num_tokens not in (None, words):
                raise ValueError(
                    f"`new_num_tokens` must be {words}, since complex_order has a row for each "
                    f"word, but is {new_num_tokens} instead; resize before the swap."
                )
        return super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, *args, **options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for module in self.modules():
            if isinstance(module, PreTrainedModel):
                _register_outputs(module)

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        tied: dict[str, str] = super().get_expanded_tied_weights_keys(all_submodels)
        modules = installed_modules(self)
        if modules is None or not (all_submodels or self.base_model is self):
            return tied
        inside = next(name for name, module in self.named_modules() if module is modules)
        same = modules.shared.items()
        return tied | {f"{inside}.{name}": f"{inside}.{first}" for name, first in same}


class PositionalGenerator(PositionalModel):
    """A text-generating model with a replaced position encoding."""

    def generate(self, *args: Any, **options: Any) -> Any:
        """Generate as transformers does; stochastic encodings draw once per call."""
        modules = installed_modules(self)
        if modules is None or not modules.draws:
            return super().generate(*args, **options)
        modules.generation_seed = int(torch.randint(2**31, ()))
        try:
            return super().generate(*args, **options)
        finally:
            modules.generation_seed = None


@cache
def config_class(theirs: Any) -> Any:
    """Return the configuration class for a family with a replaced encoding."""
    named = {"model_type": f"positional_{theirs.model_type}", "__module__": __name__}
    return type(f"{PREFIX}{theirs.__name__}", (theirs,), named)


@cache
def model_class(theirs: Any) -> Any:
    """Return the model class for a class of transformers with a replaced encoding."""
    named = {"config_class": config_class(theirs.config_class), "__module__": __name__}
    mixin = PositionalGenerator if theirs.can_generate() else PositionalModel
    return type(f"{PREFIX}{theirs.__name__}", (mixin, theirs), named)


def become_positional(model: PreTrainedModel, settings: EncodingSettings) -> None:
    """Give a model of transformers one of these classes, in place."""
    modules = build(model, settings)  # raises before the model is changed
    if not isinstance(model, PositionalModel):
        calls = check_attention_calls(model, modules.structure, settings.max_positions)
        if modules.reads_projections:
            check_projections(model, modules.structure, calls)
        theirs: Any = type(model)
        _separate_config(model)
        model.config.__class__ = config_class(theirs.config_class)
        model.__class__ = model_class(theirs)
        _register_outputs(model)
    install(model, modules.to(model.dtype), settings)


def _register_outputs(model: PreTrainedModel) -> None:
    """Register optional outputs, as hidden states, for a model's class.

    transformers does so in constructors, which a replaced class and a pickled model do not call.
    """
    _CAN_RECORD_REGISTRY[model] = model._can_record_outputs


def _separate_config(model: PreTrainedModel) -> None:
    """Copy a model's configuration, which it may share with models that keep their encoding."""
    shared = model.config
    own = copy.deepcopy(shared)
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own


def register() -> None:
    """Register the classes with transformers' Auto classes."""
    for model_type in FAMILIES:
        theirs: Any = transformers.CONFIG_MAPPING[model_type]
        ours = config_class(theirs)
        AutoConfig.register(ours.model_type, ours)
        for auto, mapping in _AUTO_CLASSES.items():
            known = getattr(transformers, mapping)
            if theirs in known:
                getattr(transformers, auto).register(ours, model_class(known[theirs]))


def __getattr__(name: str) -> Any:
    """Return ``PositionalX`` for a class ``X`` of transformers, needed by pickle."""
    theirs = getattr(transformers, name.removeprefix(PREFIX), None)
    if not name.startswith(PREFIX) or not isinstance(theirs, type):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return config_class(theirs) if issubclass(theirs, PreTrainedConfig) else model_class(theirs)
