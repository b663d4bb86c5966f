"""Schema of the recorded description of a run's data."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field

from fairseq_plugins.records.metrics import Count, Open

_EMPTY = BeforeValidator(lambda found: {} if found is None else found)
Other = str | int | float | bool | list[Any] | None


class _Parts(Open):
    """A description that may contain others, as of folders or splits."""

    def parts(self) -> dict[str, Self]:
        """Return the contained descriptions by name, in order."""
        extra = self.__pydantic_extra__ or {}
        return {name: part for name, part in extra.items() if isinstance(part, type(self))}

    def part(self, name: str) -> Self:
        """Return the contained description of a name, empty if there is none."""
        return self.parts().get(name) or type(self).model_validate({})


class PreparationRequest(_Parts):
    """The options that a folder of data was prepared with, or those of folders by name."""

    __pydantic_extra__: "dict[str, PreparationRequest | Other]"
    corpus: str | None = None
    target: str | None = None
    version: str | None = None
    merges: Count | None = None


class SplitSizes(_Parts):
    """The size of a split, or those of several splits and folders by name."""

    __pydantic_extra__: "dict[str, SplitSizes | Other]"
    words: Count | None = None
    lines: Count | None = None
    examples: Count | None = None
    questions: Count | None = None


class Numbers(_Parts):
    """Measurements of the data by name, or those of several splits and folders."""

    __pydantic_extra__: "dict[str, Numbers | float | None]"

    def number(self, *names: str) -> float | None:
        """Return the number below these names, the outermost first; None if there is none."""
        *path, last = names
        part = self
        for name in path:
            part = part.part(name)
        value = (part.__pydantic_extra__ or {}).get(last)
        return value if isinstance(value, float) else None


class DataDescription(Open):
    """The description of one folder, or of several by name.

    floors: scores of trivial baselines by split, baseline and metric. seen_first_sentences: by
    split the percentage of examples whose first sentence is one of a training example.
    """

    request: Annotated[PreparationRequest, _EMPTY] = Field(default=None, validate_default=True)
    splits: Annotated[SplitSizes, _EMPTY] = Field(default=None, validate_default=True)
    floors: Annotated[Numbers, _EMPTY] = Field(default=None, validate_default=True)
    seen_first_sentences: Annotated[Numbers, _EMPTY] = Field(default=None, validate_default=True)
    dictionary_size: "Count | dict[str, Count | dict[str, Count] | None] | None" = None
