"""The registry of encodings by name, with checked options."""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, get_origin

import torch

from fairseq_plugins.common.own_encodings import VARIABLE
from fairseq_plugins.common.suggestions import did_you_mean
from fairseq_plugins.encodings.base import (
    ALL_HOOKS,
    EncodingContext,
    PositionEncoding,
    overridden_hooks,
)
from fairseq_plugins.encodings.compose import Compose
from fairseq_plugins.encodings.options import Option, convert
from fairseq_plugins.encodings.properties import PositionFacts
from fairseq_plugins.encodings.protocols import Repositions

Maker = TypeVar("Maker", bound=Callable[..., PositionEncoding])


@dataclass(frozen=True)
class EncodingEntry:
    """A registered name: its constructor, preset options, source and formula.

    A name with ``parts`` denotes the composition of other names; its class is ``Compose``.
    """

    name: str
    make: Callable[..., PositionEncoding]
    summary: str
    source: str
    formula: str
    presets: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    known_as: tuple[str, ...] = ()

    @property
    def cls(self) -> type[PositionEncoding]:
        """The class; for a function with several result types, the first of them."""
        if isinstance(self.make, type):
            return self.make
        returned = typing.get_type_hints(self.make)["return"]
        first: type[PositionEncoding] = (typing.get_args(returned) or (returned,))[0]
        return first

    @property
    def hooks(self) -> frozenset[str]:
        """The hooks that the class, or the parts' classes, override."""
        return frozenset[str]().union(*map(overridden_hooks, self.classes))

    @property
    def classes(self) -> list[type[PositionEncoding]]:
        """The class, or the classes of the parts."""
        return [get_entry(part).cls for part in self.parts] or [self.cls]

    def refusal(self, *, causal: bool) -> str | None:
        """Return why causal (or other) attentions do not support it; None if they do."""
        attribute = "causal_refusal" if causal else "bidirectional_refusal"
        return next(filter(None, (getattr(cls, attribute) for cls in self.classes)), None)

    @property
    def facts(self) -> PositionFacts:
        """The properties that the classes declare; options of an instance may change them."""
        return PositionFacts.combined([(overridden_hooks(cls), cls) for cls in self.classes])

    @property
    def options(self) -> dict[str, Option]:
        """Return the options with their defaults under this name, in the constructor's order.

        The options of a composition are named ``part.option``.

        Raises ValueError: one could not be given as a word.
        """
        if self.parts:
            return {f"{p}.{key}": o for p in self.parts for key, o in get_entry(p).options.items()}
        _, *options = inspect.signature(self.make, eval_str=True).parameters.values()
        for p in options:
            is_typed = p.annotation in (int, float, bool) or get_origin(p.annotation) is Literal
            if p.kind is not p.KEYWORD_ONLY or p.default is p.empty or not is_typed:
                raise ValueError(
                    f"option `{p.name}` of {self.name} must be after `*`, with a default and of "
                    f"type int, float, bool or a Literal, but is `{p}` instead."
                )
        return {
            p.name: Option(p.name, p.annotation, self.presets.get(p.name, p.default))
            for p in options
        }


ENCODINGS: dict[str, EncodingEntry] = {}


def register_encoding(
    name: str,
    *,
    summary: str,
    source: str,
    formula: str,
    known_as: tuple[str, ...] = (),
    **presets: Any,
) -> Callable[[Maker], Maker]:
    """Decorate a class to register it under a name, with some options preset.

    A class may have several names; each is a row of the tables. If an option decides which hooks
    are overridden, write a class for each case and decorate a function that builds one of them
    from the context and the options; the first class of its return type is the default.

    Args:
        name: lower-case letters, digits and ``_``; a class may register its name again.
        summary: one line.
        source: paper and equation.
        formula: the definition in one line of plain text; queries at s, keys at t, from 0.
        known_as: other common names, for suggestions; one may belong to several encodings.
        presets: options with their default under this name.

    Raises:
        ValueError: the class overrides no hook, and would act as ``none`` does; or another class
            has the name, or it has other characters.
    """

    def register(make: Maker) -> Maker:
        if isinstance(make, type):
            _check_hooks(make)
        _enter(EncodingEntry(name, make, summary, source, formula, presets, known_as=known_as))
        return make

    return register


def register_composition(name: str, parts: tuple[str, ...], *, summary: str, source: str) -> None:
    """Register a name for the composition of several others, as if they were joined by ``+``.

    The parts need not be registered yet.
    """
    formula = " and ".join(parts) + ", each as under its own name"
    _enter(EncodingEntry(name, Compose, summary, source, formula, parts=parts))


def _check_hooks(cls: type[PositionEncoding]) -> None:
    if overridden_hooks(cls) or not getattr(cls, "reads_positions", True):
        return
    hooks = sorted(ALL_HOOKS)
    own = [n for n in dir(cls) if n[0] != "_" and not hasattr(PositionEncoding, n)]
    hints = {name: did_you_mean(name, hooks) for name in own if callable(getattr(cls, name))}
    raise ValueError(
        f"{cls.__name__} must override a hook, or declare `reads_positions = False`, but overrides "
        f"none of {', '.join(hooks)}."
        + "".join(f" `{name}` is no hook.{hint}" for name, hint in hints.items() if hint)
    )


def _enter(entry: EncodingEntry) -> None:
    if not re.fullmatch(r"\w+", entry.name, re.ASCII):
        raise ValueError(
            "an encoding's name must be of ASCII letters, digits and `_`, since `+` joins names, "
            f"but is {entry.name!r}."
        )
    other = ENCODINGS.get(entry.name, entry)
    # A notebook's cell that runs again defines the same class anew.
    if _origin(other) != _origin(entry):
        raise ValueError(
            f"an encoding's name must be new, but {entry.name!r} is that of "
            f"{'.'.join(_origin(other)[:2])}."
        )
    ENCODINGS[entry.name] = entry


def _origin(entry: EncodingEntry) -> tuple[str, ...]:
    return (entry.make.__module__, entry.make.__qualname__, *entry.parts)


def expand_name(name: str) -> list[str]:
    """Split a name at ``+`` and replace compositions by their parts.

    Raises:
        ValueError: for an unknown or repeated name.
    """
    words = [(word, get_entry(word)) for word in name.split("+")]
    parts = [part for word, entry in words for part in (entry.parts or (word,))]
    if len(set(parts)) < len(parts):
        raise ValueError(f"`position_encoding` must not name an encoding twice, but is {name!r}.")
    return parts


def get_entry(name: str) -> EncodingEntry:
    """Return the entry of a name.

    Raises:
        ValueError: for an unknown name; the message suggests similar names.
    """
    if name not in ENCODINGS:
        known = sorted(ENCODINGS)
        hint = did_you_mean(name, known, {n: ENCODINGS[n].known_as for n in known})
        raise ValueError(
            "`position_encoding` must be one of the encodings' names, "
            f"but is {name!r} instead.{hint} The names are {', '.join(known)}. "
            f"Import an encoding of your own first, or name its file in {VARIABLE}."
        )
    return ENCODINGS[name]


def build_encoding(
    name: str,
    *,
    num_heads: int,
    head_dim: int,
    embed_dim: int | None = None,
    max_positions: int = 1024,
    causal: bool = False,
    vocab_size: int | None = None,
    token_std: float | None = None,
    generator: torch.Generator | None = None,
    **options: Any,
) -> PositionEncoding:
    """Build an encoding by name.

    Args:
        name: a key of ``ENCODINGS``, or several joined by ``+`` for their composition.
        num_heads: attention heads H.
        head_dim: features per head D.
        embed_dim: model width C, by default ``num_heads * head_dim``.
        max_positions: longest sequence; tables that can grow do so beyond it.
        causal: whether the attention is causal.
        vocab_size: size of the dictionary, for encodings with a parameter per word.
        token_std: see ``EncodingContext``.
        generator: source of random fixed parameters; None is torch's global one.
        options: the encoding's options, as Python values or words; in a composition with the
            name in front, ``{"shaw.max_distance": 16}``.

    Raises:
        ValueError: an unknown name or option (the nearest is suggested), or a bad value.
    """
    context = EncodingContext(
        num_heads=num_heads,
        head_dim=head_dim,
        embed_dim=num_heads * head_dim if embed_dim is None else embed_dim,
        max_positions=max_positions,
        causal=causal,
        vocab_size=vocab_size,
        token_std=token_std,
        generator=generator,
    )
    split = split_options(name, options)
    contexts = contexts_of(split, context)
    parts = [build_one(n, contexts[n], o) for n, o in split.items()]
    if len(parts) == 1:
        return parts[0]
    composed = Compose(parts)
    composed.label = name
    return composed


def split_options(name: str, options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Check and convert options, and assign them to the parts of ``name``.

    Raises:
        ValueError: an unknown or repeated name or option, or a bad value.
    """
    names = expand_name(name)
    entries = {n: get_entry(n) for n in names}
    result: dict[str, dict[str, Any]] = {n: {} for n in names}
    for key, value in options.items():
        part, _, option_name = key.rpartition(".")
        part = part or names[0]
        if "." not in key and len(names) > 1:
            owner = next((n for n in names if key in entries[n].options), names[-1])
            raise ValueError(
                f"option `{key}` must name its encoding among those of {name!r}, "
                f"as in `{owner}.{key}`."
            )
        if part not in entries:
            raise ValueError(f"option `{key}` must be for one of {names}, but is for {part!r}.")
        known = entries[part].options
        if option_name not in known:
            has = ", ".join(known) if known else "none"
            raise ValueError(
                f"{part} has no option `{option_name}`; its options: {has}."
                f"{did_you_mean(option_name, known)}"
            )
        if option_name in result[part]:
            raise ValueError(
                f"option `{option_name}` of {part} must not be given twice, with and without "
                f"`{part}.` before it."
            )
        result[part][option_name] = convert(part, known[option_name], value)
    return result


def build_one(name: str, context: EncodingContext, options: Mapping[str, Any]) -> PositionEncoding:
    """Build the encoding of a single name from checked options."""
    entry = get_entry(name)
    encoding = entry.make(context, **{**entry.presets, **options})
    encoding.label = name
    return encoding


def contexts_of(
    split: Mapping[str, Mapping[str, Any]], context: EncodingContext
) -> dict[str, EncodingContext]:
    """Return the context of each part.

    If a part samples positions, ``max_positions`` of the others is the end of its range.
    """
    samplers = [name for name in split if hasattr(get_entry(name).cls, "reposition")]
    if not samplers:
        return dict.fromkeys(split, context)
    first = build_one(samplers[0], context, split[samplers[0]])
    assert isinstance(first, Repositions)
    wide = replace(context, max_positions=first.reach)
    return {name: context if name in samplers else wide for name in split}


def with_absolute_embedding(name: str, absolute: str | None) -> str:
    """Prepend the framework's absolute embedding to ``name`` where the papers keep it.

    ``absolute`` is the framework's encoding (``base``), or None for none. Encodings that replace
    it (``none``, ``alibi``, all absolute ones) leave ``name`` unchanged.
    """
    entries = [get_entry(part) for part in expand_name(name)]
    keeps = all(cls.keeps_absolute_embedding for e in entries for cls in e.classes)
    return f"{absolute}+{name}" if absolute and keeps else name
