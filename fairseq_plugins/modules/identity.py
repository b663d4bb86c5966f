"""What a model computes with its weights, read from its options, and how two models differ.

Weights say little about that: those of `rope` and `alibi` have the same names and shapes, and so
have those of four heads and of eight.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY

from fairseq_plugins.attention import ATTENTIONS
from fairseq_plugins.attention.normalizers import defaults_of
from fairseq_plugins.common.checkpoints import model_options
from fairseq_plugins.common.errors import CheckpointError
from fairseq_plugins.encodings import PositionEncoding, get_entry
from fairseq_plugins.encodings.registry import split_options
from fairseq_plugins.modules.naming import StackName, name_stack
from fairseq_plugins.modules.options import NORMALIZER_OPTIONS, PositionEncodingConfig
from fairseq_plugins.modules.transformer_options import PLACES, options_at

LM, ROBERTA, TRANSLATION = "pe_transformer_lm", "pe_roberta", "pe_transformer"
MODELS = (LM, ROBERTA, TRANSLATION)
THEIR_ROBERTA = "roberta"  # fairseq's own, whose weights ours can take

_PLACE_WORDS = {"encoder": "encoder", "decoder": "decoder", "cross": "cross-attention"}
_ENCODES = frozenset({"transform_query", "transform_key"})
# Options of encodings whose 0 stands for the longest sequence of the model.
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
    # With a tied head that of an untied one would be loaded over the table of the tokens.
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
class Part:
    """An encoding with all of its options.

    Attributes:
        name: that it was asked for by; several may stand for one kind with other options.
        kind: what makes it.
        options: by name, those that were not given with their defaults. None is unknown.
    """

    name: str
    kind: Callable[..., PositionEncoding]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """One of a model's kinds of attention, with what acts on the inputs of its stack.

    Attributes:
        given: the encoding by the name that was asked for.
        attention: its type.
        inputs: encodings that act on the inputs of layers, in their order.
        layers: encodings that act inside the attention alone, in their order.
        linear: feature map, normalizer and its options of linear attention; empty elsewhere.
    """

    given: str
    attention: str
    inputs: Sequence[Part]
    layers: Sequence[Part]
    linear: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Identity:
    """A model: its name, its attentions by their place, and what else decides how it computes."""

    model: str
    places: Mapping[str, Place] = field(default_factory=dict)
    structure: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """Something in which two models differ.

    Attributes:
        about: ``model``, ``encoding``, ``attention``, or the name of another option.
        theirs: what the one has: words, or the option's value.
        ours: what the other has.
        place: where in a model of several attentions.
    """

    about: str
    theirs: Any
    ours: Any
    place: str = ""

    @property
    def has(self) -> str:
        """What the one has, in words."""
        return self._word(self.theirs) + (f" in the {self.place}" if self.place else "")

    @property
    def asks(self) -> str:
        """What the other has, in words."""
        return self._word(self.ours)

    def _word(self, value: Any) -> str:
        is_words = self.about in ("model", "encoding", "attention")
        return str(value) if is_words else f"{self.about}={value}"


def differences(theirs: Identity, ours: Identity) -> list[Difference]:
    """In what two models differ, and nothing of what only is spelled in another way.

    What one of them does not say is not compared.
    """
    if theirs.model != ours.model:
        return [Difference("model", f"a {theirs.model}", f"a {ours.model}")]
    found = []
    for name, place in ours.places.items():
        where = _PLACE_WORDS[name] if len(ours.places) > 1 else ""
        found += [replace(d, place=where) for d in _between(theirs.places[name], place)]
    for name, value in ours.structure.items():
        other = theirs.structure.get(name)
        if None not in (value, other) and value != other:
            found.append(Difference(name, other, value))
    return found


def _between(theirs: Place, ours: Place) -> Iterator[Difference]:
    has = f"{_words(theirs, ours)} under {theirs.attention} attention"
    same = _same(theirs.inputs, ours.inputs) and _same(theirs.layers, ours.layers)
    if theirs.attention != ours.attention:
        asked = f"{ours.attention} attention"
        yield Difference(
            "attention", has, asked if same else f"{_words(ours, theirs)} under {asked}"
        )
        return
    if not same:
        yield Difference("encoding", has, _words(ours, theirs))
    for name, value in ours.linear.items():
        if name in theirs.linear and theirs.linear[name] != value:
            yield Difference(name, theirs.linear[name], value)


def _same(theirs: Sequence[Part], ours: Sequence[Part]) -> bool:
    return [p.kind for p in theirs] == [p.kind for p in ours] and not any(
        _other_options(one, other) for one, other in zip(theirs, ours, strict=True)
    )


def _other_options(one: Part, other: Part) -> list[str]:
    """The names of the options of which two encodings of a class have different values."""
    return [
        name
        for name, value in one.options.items()
        if None not in (value, other.options[name]) and value != other.options[name]
    ]


def _words(place: Place, other: Place) -> str:
    """An encoding as it differs from another: by its name, its options, or else its parts."""
    if place.given != other.given:
        return f"`{place.given}`"
    twins = {part.kind: part for part in (*other.inputs, *other.layers)}
    parts = (*place.inputs, *place.layers)
    changed = []
    for part in parts:
        names = _other_options(part, twins[part.kind]) if part.kind in twins else []
        changed += [f"{part.name} {name}={part.options[name]}" for name in names]
    return f"`{', '.join(changed) or '+'.join(part.name for part in parts) or 'none'}`"


class Options:
    """Options read as attributes, from a mapping, a dataclass or a Namespace.

    What is not there, as in a checkpoint from before an option existed, has its default, or is
    None where no dataclass says one, as with fairseq's own models.
    """

    def __init__(self, given: Any) -> None:
        self._given = given
        kind: Any = type(given) if is_dataclass(given) else MODEL_DATACLASS_REGISTRY.get(self._name)
        self._defaults = {f.name: f.default for f in fields(kind)} if kind else {}

    @property
    def _name(self) -> str:
        return str(self._find("_name") or self._find("arch"))

    def _find(self, name: str) -> Any:
        get = getattr(self._given, "get", None)
        return get(name) if get else getattr(self._given, name, None)

    def __getattr__(self, name: str) -> Any:
        value = self._find(name)
        if value is None:
            value = self._defaults.get(name, None)
            if value is MISSING or str(value).startswith("${"):
                return None
        # Words of a choice are members of an enumeration, or plain in a checkpoint.
        return value if value is None or isinstance(value, bool | int | float) else str(value)


def model_name(options: Any) -> str:
    """The name that a model, or one with a preset architecture, is registered under."""
    name = Options(options)._name
    return ARCH_MODEL_NAME_REGISTRY.get(name, name)


def describe(options: Any, task: Any = None, model: str | None = None) -> Identity:
    """What a model computes.

    Args:
        options: of the model, as fairseq has them or writes them into a checkpoint.
        task: those of its task, which may say the longest sequence.
        model: its name, where the options do not say it.

    Returns:
        Of a model that is not ours the name alone.
    """
    name = model or model_name(options)
    if name not in (*MODELS, THEIR_ROBERTA):
        return Identity(name)
    known, read = ROBERTA if name == THEIR_ROBERTA else name, Options(options)
    structure = {option: getattr(read, option) for option in (*_STRUCTURE[known], *_COMMON)}
    if structure.get("decoder_normalize_before"):
        structure["no_decoder_final_norm"] = read.no_decoder_final_norm
    if known == TRANSLATION:  # as it is built
        for option in ("embed_dim", "ffn_embed_dim"):
            structure[f"decoder_{option}"] = (
                structure[f"decoder_{option}"] or structure[f"encoder_{option}"]
            )
        output = structure["decoder_output_dim"] or structure["decoder_embed_dim"]
        structure["decoder_output_dim"] = output
    return Identity(known, dict(_places(known, read, Options(task))), structure)


def describe_checkpoint(path: Path, checkpoint: Mapping[str, Any]) -> Identity:
    """What the model of a checkpoint computes.

    Args:
        path: of the checkpoint, for the message.
        checkpoint: as `read_checkpoint` gives it.

    Raises:
        CheckpointError: it does not say what model it is of, or has an encoding that is not known.
    """
    options = model_options(path, checkpoint)
    if not options:
        raise CheckpointError(f"{path} does not say what model it is of")
    try:
        return describe(options, (checkpoint.get("cfg") or {}).get("task"))
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def _places(model: str, read: Options, task: Options) -> Iterator[tuple[str, Place]]:
    off = read.no_token_positional_embeddings
    if model == LM:
        absolute = "learned" if read.decoder_learned_pos else "base"
        longest = read.max_target_positions or read.tokens_per_sample
        yield "decoder", _place(read, None if off else absolute, None, longest)
        return
    if model == ROBERTA:
        base = "base" if read.encoder_learned_pos is False else "learned"
        longest = read.max_positions or task.tokens_per_sample or task.max_positions
        longest = longest and max(longest, read.min_positions or 0)
        yield "encoder", _place(read, None if off else base, base, longest)
        return
    source, target = read.max_source_positions, read.max_target_positions
    lengths = {"encoder": source, "decoder": target, "cross": source and target}
    if lengths["cross"]:
        lengths["cross"] = max(source, target)
    for place in PLACES:
        absolute = "learned" if getattr(read, f"{place}_learned_pos") else "base"
        beside = None if off or place == "cross" else absolute
        yield place, _place(options_at(read, place), beside, None, lengths[place])


def _place(
    options: PositionEncodingConfig | Options,
    absolute: str | None,
    base: str | None,
    longest: int | None,
) -> Place:
    given = options.position_encoding or "base"
    attention = str(options.attention_type or "vanilla")
    if attention not in ATTENTIONS:
        raise ValueError(f"`attention_type` must be one of {', '.join(ATTENTIONS)}: {attention!r}")
    words = options.position_encoding_options or ""
    named = name_stack(given, words, absolute=absolute, base=base)
    parts = list(_parts(named, longest))
    inputs = [part for part in parts if "embed" in get_entry(part.name).hooks]
    layers = [part for part in parts if part not in inputs]
    linear = _linear_options(options, layers) if attention == "linear" else {}
    return Place(given, attention, inputs, layers, linear)


def _linear_options(
    options: PositionEncodingConfig | Options, layers: Sequence[Part]
) -> dict[str, Any]:
    """As they work out with these encodings.

    One may bring its own feature map, and without one that encodes queries and keys a denominator
    of encoded ones is the plain one, which has no floor.
    """
    entries = [get_entry(part.name) for part in layers]
    own = [found for entry in entries if (found := getattr(entry.cls, "feature_map", None))]
    encodes = any(entry.hooks & _ENCODES for entry in entries)
    normalizer = str(options.linear_normalizer)
    used = defaults_of(normalizer)
    found = {
        "feature_map": own[0] if own else str(options.feature_map),
        "linear_normalizer": "plain" if normalizer == "encoded" and not encodes else normalizer,
        **{n: getattr(options, n) for n, word in NORMALIZER_OPTIONS.items() if word in used},
    }
    if not encodes and "min_cosine" in found:
        found["min_cosine"] = 0.0
    return found


def _parts(named: StackName, longest: int | None) -> Iterator[Part]:
    for name, given in split_options(named.name, named.options).items():
        entry = get_entry(name)
        options = {key: option.default for key, option in entry.options.items()} | given
        options |= {key: longest for key in _ZERO_IS_LONGEST if options.get(key) == 0}
        angles_are_of_longest = options.get("theta_type", "a") != "a"
        if not entry.facts.extrapolates or (
            angles_are_of_longest and not options.get("learned_theta")
        ):
            options["max_positions"] = longest  # the rows of its table, or what angles divide by
        yield Part(name, entry.make, options)
