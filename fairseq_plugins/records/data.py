"""What is recorded of a run's data: what was asked for, and how much of it there is."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field

from fairseq_plugins.records.metrics import Count, Open

_EMPTY = BeforeValidator(lambda found: {} if found is None else found)
Other = str | int | float | bool | list[Any] | None


class _Parts(Open):
    """A description that may consist of others, by whatever it is parted into."""

    def parts(self) -> dict[str, Self]:
        """These, in their order."""
        extra = self.__pydantic_extra__ or {}
        return {name: part for name, part in extra.items() if isinstance(part, type(self))}

    def part(self, name: str) -> Self:
        """That of a name, empty where there is none."""
        return self.parts().get(name) or type(self).model_validate({})


class Request(_Parts):
    """What a folder's data was made from, or that of several folders by name."""

    __pydantic_extra__: "dict[str, Request | Other]"
    corpus: str | None = None
    target: str | None = None
    version: str | None = None
    merges: Count | None = None


class Sizes(_Parts):
    """How much there is of a split, or that of several splits and folders by name."""

    __pydantic_extra__: "dict[str, Sizes | Other]"
    words: Count | None = None
    lines: Count | None = None
    examples: Count | None = None
    questions: Count | None = None


class Numbers(_Parts):
    """What is measured of the data, by name, or that of several splits and folders by name."""

    __pydantic_extra__: "dict[str, Numbers | float | None]"

    def number(self, *names: str) -> float | None:
        """A number, each name one step further in; None where there is none."""
        *path, last = names
        found = self
        for name in path:
            found = found.part(name)
        value = (found.__pydantic_extra__ or {}).get(last)
        return value if isinstance(value, float) else None


class DataDescription(Open):
    """The description of one folder, or of several by name.

    floors: what needs no model, by split, predictor and metric. seen_first_sentences: by split the
    examples whose first sentence a training example has, in per cent.
    """

    request: Annotated[Request, _EMPTY] = Field(default=None, validate_default=True)
    splits: Annotated[Sizes, _EMPTY] = Field(default=None, validate_default=True)
    floors: Annotated[Numbers, _EMPTY] = Field(default=None, validate_default=True)
    seen_first_sentences: Annotated[Numbers, _EMPTY] = Field(default=None, validate_default=True)
    dictionary_size: "Count | dict[str, Count | dict[str, Count] | None] | None" = None
