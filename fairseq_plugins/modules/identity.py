"""Description of a model's computation, read from its options, and comparison of two models.

Weights do not suffice for this: those of `rope` and `alibi` have the same names and shapes, and so
do those of four and of eight heads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY

from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.common.checkpoints import model_options, option_of
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.encodings import PositionEncoding, get_entry
from fairseq_plugins.encodings.registry import split_options
from fairseq_plugins.modules.naming import StackName, name_stack
from fairseq_plugins.modules.options import (
    NORMALIZER_OPTIONS,
    PositionEncodingConfig,
    unused_linear_options,
)
from fairseq_plugins.modules.transformer_options import ATTENTION_SITES, options_at

LM, ROBERTA, TRANSLATION = "pe_transformer_lm", "pe_roberta", "pe_transformer"
MODELS = (LM, ROBERTA, TRANSLATION)
# fairseq's own models -> ours, which equal them with the encoding `base` or `learned`.
THEIR_MODELS = {"transformer_lm": LM, "roberta": ROBERTA, "transformer": TRANSLATION}

_SITE_NAMES = {"encoder": "encoder", "decoder": "decoder", "cross": "cross-attention"}
_ENCODES = frozenset({"transform_query", "transform_key"})
# Encoding options for which 0 means the longest sequence of the model.
_ZERO_IS_LONGEST = ("length", "longest", "table_size", "trained_length")
_COMMON = ("activation_fn", "layernorm_embedding", "no_scale_embedding")
_SIDE = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before")
_STRUCTURE = {
    LM: (
        *(f"decoder_{name}" for name in _SIDE),
        *("decoder_input_dim", "decoder_output_dim", "share_decoder_input_output_embed"),
        *("adaptive_input", "tie_adaptive_weights", "tie_adaptive_proj"),
        *("scale_fc", "scale_attn", "scale_heads", "scale_resids"),
    ),
    # A tied head loaded from an untied one would overwrite the token embeddings.
    ROBERTA: (
        *(f"encoder_{name}" for name in _SIDE),
        *("untie_weights_roberta", "layer_norm_eps", "segments"),
    ),
    TRANSLATION: (
        *(f"encoder_{name}" for name in _SIDE),
        *(f"decoder_{name}" for name in _SIDE),
        *("decoder_output_dim", "share_decoder_input_output_embed", "share_all_embeddings"),
    ),
}


@dataclass(frozen=True)
class EncodingSpec:
    """An encoding with the values of all its options."""

    name: str  # as requested; several may refer to one class with other defaults
    kind: Callable[..., PositionEncoding]  # builds it
    options: Mapping[str, Any]  # by name, defaults included; None if unknown


@dataclass(frozen=True)
class AttentionSite:
    """One kind of attention in a model, with the encodings of its stack."""

    given: str  # requested name of the encoding
    attention: str  # its type
    inputs: Sequence[EncodingSpec]  # applied to layer inputs, in order
    layers: Sequence[EncodingSpec]  # applied inside the attention, in order
    # Feature map, normalizer and its options; empty unless the attention is linear.
    linear: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelDescription:
    """Description of a model's computation, to compare models."""

    model: str  # registered name
    sites: Mapping[str, AttentionSite] = field(default_factory=dict)  # encoder, decoder, cross
    structure: Mapping[str, Any] = field(default_factory=dict)  # options of the computation


@dataclass(frozen=True)
class Difference:
    """An option in which two models differ."""

    about: str  # ``model``, ``encoding``, ``attention``, or the name of another option
    theirs: Any  # description or option value of the first model
    ours: Any  # description or option value of the second model
    site: str = ""  # of the attention, for models with several

    @property
    def has(self) -> str:
        """Text for the first model's value."""
        return self._text(self.theirs) + (f" in the {self.site}" if self.site else "")

    @property
    def asks(self) -> str:
        """Text for the second model's value."""
        return self._text(self.ours)

    def _text(self, value: Any) -> str:
        is_description = self.about in ("model", "encoding", "attention")
        return str(value) if is_description else f"{self.about}={value}"


def differences(theirs: ModelDescription, ours: ModelDescription) -> list[Difference]:
    """List the differences of two models; different spellings of one setting do not count.

    Options that one of them does not record are not compared.
    """
    if theirs.model != ours.model:
        return [Difference("model", f"a {theirs.model}", f"a {ours.model}")]
    result = []
    for name, site in ours.sites.items():
        site_name = _SITE_NAMES[name] if len(ours.sites) > 1 else ""
        result += [replace(d, site=site_name) for d in _site_differences(theirs.sites[name], site)]
    for name, value in ours.structure.items():
        other = theirs.structure.get(name)
        if None not in (value, other) and value != other:
            result.append(Difference(name, other, value))
    return result


def _site_differences(theirs: AttentionSite, ours: AttentionSite) -> Iterator[Difference]:
    has = f"{_distinctive_name(theirs, ours)} under {theirs.attention} attention"
    asks = _distinctive_name(ours, theirs)
    same = _same(theirs.inputs, ours.inputs) and _same(theirs.layers, ours.layers)
    if theirs.attention != ours.attention:
        attention = f"{ours.attention} attention"
        yield Difference("attention", has, attention if same else f"{asks} under {attention}")
        return
    if not same:
        yield Difference("encoding", has, asks)
    for name, value in ours.linear.items():
        if name in theirs.linear and theirs.linear[name] != value:
            yield Difference(name, theirs.linear[name], value)


def _same(theirs: Sequence[EncodingSpec], ours: Sequence[EncodingSpec]) -> bool:
    return [p.kind for p in theirs] == [p.kind for p in ours] and not any(
        _other_options(one, other) for one, other in zip(theirs, ours, strict=True)
    )


def _other_options(one: EncodingSpec, other: EncodingSpec) -> list[str]:
    """Return the names of the options in which two encodings of one class differ."""
    return [
        name
        for name, value in one.options.items()
        if None not in (value, other.options.get(name)) and value != other.options[name]
    ]


def _distinctive_name(site: AttentionSite, other: AttentionSite) -> str:
    """Name an encoding by the name, options or parts that distinguish it from another."""
    if site.given != other.given:
        return f"`{site.given}`"
    other_parts = {part.kind: part for part in (*other.inputs, *other.layers)}
    parts = (*site.inputs, *site.layers)
    changed = [
        f"{part.name} {name}={part.options[name]}"
        for part in parts
        if part.kind in other_parts
        for name in _other_options(part, other_parts[part.kind])
    ]
    return f"`{', '.join(changed) or '+'.join(part.name for part in parts) or 'none'}`"


class Options:
    """Attribute access to options stored in a mapping, a dataclass or a Namespace.

    A missing option, as in a checkpoint older than the option, has its default; None if no
    dataclass defines one, as for fairseq's own models.
    """

    def __init__(self, given: Any) -> None:
        self._given = given
        kind: Any = type(given) if is_dataclass(given) else MODEL_DATACLASS_REGISTRY.get(self._name)
        self._defaults = {f.name: f.default for f in fields(kind)} if kind else {}

    @property
    def _name(self) -> str:
        return str(option_of(self._given, "_name") or option_of(self._given, "arch"))

    def __getattr__(self, name: str) -> Any:
        value = option_of(self._given, name)
        if value is None:
            value = self._defaults.get(name, None)
            if value is MISSING or str(value).startswith("${"):
                return None
        # Choices are enumeration members, or plain strings in a checkpoint.
        return value if value is None or isinstance(value, bool | int | float) else str(value)


def describe(options: Any, task: Any = None, model: str | None = None) -> ModelDescription:
    """Describe the computation of a model.

    Args:
        options: model options, as fairseq holds them or stores them in a checkpoint.
        task: options of its task, which may set the longest sequence.
        model: registered name, if the options do not contain it.

    Returns:
        The description; for models of other packages only the name.
    """
    read = Options(options)
    # A preset architecture has a name of its own.
    name = model or ARCH_MODEL_NAME_REGISTRY.get(read._name, read._name)
    if (known := THEIR_MODELS.get(name, name)) not in MODELS:
        return ModelDescription(name)
    structure = {option: getattr(read, option) for option in (*_STRUCTURE[known], *_COMMON)}
    if structure.get("decoder_normalize_before"):
        structure["no_decoder_final_norm"] = read.no_decoder_final_norm
    if known == TRANSLATION:  # resolve defaults as `to_transformer_config` does
        for option, default in (
            ("decoder_embed_dim", "encoder_embed_dim"),
            ("decoder_ffn_embed_dim", "encoder_ffn_embed_dim"),
            ("decoder_output_dim", "decoder_embed_dim"),
        ):
            structure[option] = structure[option] or structure[default]
    return ModelDescription(known, dict(_sites(known, read, Options(task))), structure)


def describe_checkpoint(path: Path, checkpoint: Mapping[str, Any]) -> ModelDescription:
    """Describe the computation of a checkpoint's model.

    Args:
        path: path of the checkpoint, for error messages.
        checkpoint: result of `read_checkpoint`.

    Raises:
        CheckpointError: the checkpoint names no model, or its encoding is unknown.
    """
    options = model_options(path, checkpoint)
    if not options:
        raise CheckpointError(f"{path} does not name its model")
    try:
        return describe(options, (checkpoint.get("cfg") or {}).get("task"))
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def _sites(model: str, read: Options, task: Options) -> Iterator[tuple[str, AttentionSite]]:
    off = read.no_token_positional_embeddings
    if model == LM:
        base = "learned" if read.decoder_learned_pos else None
        longest = read.max_target_positions or read.tokens_per_sample
        yield "decoder", _site(read, None if off else base or "base", base, longest)
        return
    if model == ROBERTA:
        base = "base" if read.encoder_learned_pos is False else "learned"
        longest = read.max_positions or task.tokens_per_sample or task.max_positions
        longest = longest and max(longest, read.min_positions or 0)
        yield "encoder", _site(read, None if off else base, base, longest)
        return
    source, target = read.max_source_positions, read.max_target_positions
    longest = source and target and max(source, target)
    lengths = {"encoder": source, "decoder": target, "cross": longest}
    for site in ATTENTION_SITES:
        base = "learned" if getattr(read, f"{site}_learned_pos") else None
        added = None if off or site == "cross" else base or "base"
        yield site, _site(options_at(read, site), added, base, lengths[site])


def _site(
    options: PositionEncodingConfig | Options,
    absolute: str | None,
    base: str | None,
    longest: int | None,
) -> AttentionSite:
    given = options.position_encoding or base or ("base" if absolute else "none")
    attention = str(options.attention_type or "vanilla")
    if attention not in ATTENTIONS:
        raise ValueError(f"`attention_type` must be one of {', '.join(ATTENTIONS)}: {attention!r}")
    values = options.position_encoding_options or ""
    parts = list(_parts(name_stack(given, values, absolute=absolute, base=base), longest))
    inputs = [part for part in parts if "embed" in get_entry(part.name).hooks]
    layers = [part for part in parts if part not in inputs]
    linear = _linear_options(options, layers) if attention == "linear" else {}
    return AttentionSite(given, attention, inputs, layers, linear)


def _linear_options(
    options: PositionEncodingConfig | Options, layers: Sequence[EncodingSpec]
) -> dict[str, Any]:
    """Return the effective options; without an encoding of q and k every sum is ``plain``."""
    entries = [get_entry(part.name) for part in layers]
    feature_maps = (getattr(entry.cls, "feature_map", None) for entry in entries)
    encodes = any(entry.hooks & _ENCODES for entry in entries)
    normalizer = str(options.linear_normalizer)
    if not encodes and normalizer in ("encoded", "clamped"):
        normalizer = "plain"
    unused = unused_linear_options(["linear"], normalizer)
    effective = {
        "feature_map": next(filter(None, feature_maps), str(options.feature_map)),
        "linear_normalizer": normalizer,
        **{name: getattr(options, name) for name in NORMALIZER_OPTIONS if name not in unused},
    }
    if not encodes and "min_cosine" in effective:
        effective["min_cosine"] = 0.0
    return effective


def _parts(named: StackName, longest: int | None) -> Iterator[EncodingSpec]:
    for name, given in split_options(named.name, named.options).items():
        entry = get_entry(name)
        options = {key: option.default for key, option in entry.options.items()} | given
        options |= {key: longest for key in _ZERO_IS_LONGEST if options.get(key) == 0}
        depends = options.get("theta_type", "a") != "a" and not options.get("learned_theta")
        if depends or not entry.facts.extrapolates:
            options["max_positions"] = longest  # rows of its table, or divisor of its angles
        yield EncodingSpec(name, entry.make, options)
