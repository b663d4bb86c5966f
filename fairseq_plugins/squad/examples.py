"""Reader of SQuAD's official files v1.1 and v2.0, which checks every field.

{"version": ..., "data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [{"id": ...,
"question": ..., "answers": [{"text": ..., "answer_start": ...}], "is_impossible": ...}]}]}]},
where only v2.0 has "is_impossible", and "answer_start" counts characters.
"""

from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from fairseq_plugins.common import files
from fairseq_plugins.common.errors import DataError


@dataclass(frozen=True)
class Answer:
    """The text at context[start : start + len(text)]."""

    text: Annotated[str, Field(min_length=1)]
    start: Annotated[int, Field(ge=0, validation_alias="answer_start")]

    @property
    def end(self) -> int:
        """The index after the last character."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question with its gold answers, none for an impossible one (v2.0)."""

    id: str
    text: Annotated[str, Field(validation_alias="question")]
    answers: tuple[Answer, ...]
    is_impossible: bool | None = None


@dataclass(frozen=True)
class Paragraph:
    """A text with its questions."""

    context: str
    questions: Annotated[tuple[Question, ...], Field(validation_alias="qas")]


@dataclass(frozen=True)
class _Article:
    paragraphs: tuple[Paragraph, ...]


@dataclass(frozen=True)
class _Content:
    data: tuple[_Article, ...]

    def questions(self) -> Iterator[tuple[str, Paragraph, Question]]:
        """Yield each question with its place in the file."""
        for i, article in enumerate(self.data):
            for j, paragraph in enumerate(article.paragraphs):
                for k, question in enumerate(paragraph.questions):
                    yield f"data[{i}].paragraphs[{j}].qas[{k}]", paragraph, question


@dataclass(frozen=True)
class SquadFile:
    """The content of a file; `version` is one of VERSIONS, `raw` the unpacked bytes."""

    version: str
    paragraphs: tuple[Paragraph, ...]
    raw: bytes

    @property
    def questions(self) -> list[Question]:
        """Return all questions, in the order of the file."""
        return [question for paragraph in self.paragraphs for question in paragraph.questions]


def read_squad(path: Path, version: str | None = None) -> SquadFile:
    """Read a file, plain or packed.

    Args:
        path: the file.
        version: required version; None for any. Files with "is_impossible" are 2.0.

    Raises:
        DataError: the file is invalid; the message names the line or the field.
    """
    raw = read_bytes(path)
    content: _Content = parse_json(raw, path, _Content)
    asked = [*content.questions()]
    if not asked:
        raise DataError(f"{path}: holds no question")
    found = "2.0" if any(one.is_impossible is not None for *_, one in asked) else "1.1"
    if version not in (None, found):
        raise DataError(
            f"{path}: must be SQuAD v{version}, but is v{found} instead: "
            f"'is_impossible' {'occurs' if found == '2.0' else 'is missing'}"
        )
    ids: set[str] = set()
    for place, paragraph, question in asked:
        if problem := _problem(paragraph.context, question, found, ids):
            raise DataError(f"{path}: {place}.{problem}")
        ids.add(question.id)
    return SquadFile(found, tuple(p for one in content.data for p in one.paragraphs), raw)


def read_bytes(path: Path) -> bytes:
    """Read a file, plain or packed.

    Raises:
        DataError: the file is missing or truncated.
    """
    try:
        return files.read_bytes(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def parse_json(raw: bytes, path: Path, kind: Any) -> Any:
    """Parse the content of a JSON file as a value of a type.

    Raises:
        DataError: the content is not JSON, or of another type; the message names the file, and the
            line or the field.
    """
    try:
        return TypeAdapter(kind).validate_json(raw.removeprefix(BOM_UTF8), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in first["loc"])
        but = f", but is {first['input']!r:.60}" if first["type"] not in _NO_INPUT else ""
        where = ": ".join(filter(None, (str(path), place.lstrip("."), first["msg"])))
        raise DataError(f"{where}{but}") from error


_NO_INPUT = ("missing", "json_invalid")  # errors that are not about a value


def _problem(context: str, question: Question, version: str, ids: set[str]) -> str:
    """Describe a question's first invalid value, beginning with the field's name; "" if valid.

    Types are checked before.
    """
    if question.id in ids:
        return f"id must be unique, but {question.id!r} came before"
    if version == "2.0" and question.is_impossible is None:
        return "is_impossible is missing"
    if bool(question.is_impossible) == bool(question.answers):
        must = "empty where is_impossible is true" if question.answers else "at least one"
        return f"answers must be {must}, but there are {len(question.answers)}"
    for number, answer in enumerate(question.answers):
        if (found := context[answer.start : answer.end]) != answer.text:
            return (
                f"answers[{number}].answer_start must be the position of {answer.text!r:.60}, "
                f"but at {answer.start} the context has {found!r:.60}"
            )
    return ""
