"""Results: the JSON of finished runs, its schema, reading and comparing."""

import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
)
from pydantic_core import from_json

from fairseq_plugins.common import provenance
from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.records.logs import TrainingLog
from fairseq_plugins.records.metrics import Count, MetricsSchema, NotNegative, Open, Strict
from fairseq_plugins.records.recipe import differences, trainings_of
from fairseq_plugins.records.recipe_files import NewerResult, complete_result
from fairseq_plugins.records.runs import Run, Study

SAME_START = 0.002  # difference of cosines at which two recoveries count as repetitions of one
M = TypeVar("M", bound=MetricsSchema)
Table = dict[str, Any]
Result = dict[str, Any]
Say = Callable[[str], None]
# Names of types that pydantic adds to the location of an error in a value of several types.
_ALTERNATIVE = re.compile(
    r"PreparationRequest|SplitSizes|str|int|float|bool|constrained-int|(list|dict)\[.*\]"
)


def _is_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


_Commit = Annotated[str, Field(pattern=r"^([0-9a-f]{40}(-dirty)?|release [\w.+-]+|unknown)$")]
_Sources = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
_Time = Annotated[str, AfterValidator(_is_time)]


class _Dataset(Open):
    batch_size: PositiveInt | None = None
    max_tokens: PositiveInt | None = None


class _Optimization(Open):
    lr: list[float]
    update_freq: Annotated[list[PositiveInt], Field(min_length=1)]


class _Distributed(Open):
    distributed_world_size: PositiveInt


class _Training(Open):
    task: Table
    model: Table
    dataset: _Dataset
    optimization: _Optimization
    distributed_training: _Distributed


class _Versions(Open):
    torch: str
    fairseq: str


class _Hardware(Open):
    cpu: str
    cores: PositiveInt | None
    gpus: list[str]


Points = Annotated[list[Annotated[tuple[Count, float], Field(strict=False)]], Field(min_length=1)]


class CurvesSchema(Strict):
    """Curves of a training: updates and loss, as fairseq prints them."""

    model_config = ConfigDict(extra="forbid")

    train: Points | None = None
    valid: Points | None = None


class StudySchema(Strict):
    """A study, as `runs.Study.record` returns it."""

    name: str
    overrides: list[str]
    data: str | None


class EarlierSchema(Strict):
    """Trainings of an earlier result of the run, and the circumstances of their measurements."""

    model_config = ConfigDict(extra="forbid")

    trainings: list[str]
    commit: _Commit
    sources: _Sources | None = None
    versions: _Versions
    hardware: _Hardware
    wall_seconds: NotNegative
    finished_at: _Time


class ResultSchema(Strict, Generic[M]):
    """A result with metrics `M`; its fields are in the order of the file."""

    model_config = ConfigDict(extra="forbid")

    table: str
    row: str
    attention: str
    scale: str
    seed: Count
    study: StudySchema | None = None
    metrics: M
    signature: str | None = None  # SacreBLEU's signature
    curves: dict[str, CurvesSchema] | None = None  # by training; not in older results
    command: list[str]
    config: Annotated[
        dict[str, _Training],
        BeforeValidator(lambda found: trainings_of(found) if isinstance(found, dict) else found),
    ]
    data: DataDescription
    commit: _Commit
    sources: _Sources | None = None  # not in older results
    versions: _Versions
    hardware: _Hardware
    wall_seconds: NotNegative
    finished_at: _Time
    earlier: list[EarlierSchema] | None = None  # where later trainings completed the result


def training_metrics(trainings: Sequence[TrainingLog], train_seconds: float) -> dict[str, Any]:
    """Return the metrics of all experiments; parameters and speed are of the first training."""
    first = trainings[0]
    return {
        "train_seconds": round(train_seconds, 1),
        "updates": sum(log.updates or 0 for log in trainings) or None,
        "tokens_per_second": first.tokens_per_second,
        "parameters": first.parameters,
    }


def completed(earlier: Result, later: Result) -> Result:
    """Return a later result of a run, which keeps the trainings of an earlier one.

    Seconds, updates and curves are of all trainings; the circumstances of the earlier ones are in
    ``earlier``.

    Raises ValueError: the two start from different models.
    """
    metrics, before = later["metrics"], earlier["metrics"]
    similarities = [one.get("start_cosine") for one in (before, metrics)]
    if None not in similarities and abs(similarities[0] - similarities[1]) > SAME_START:
        raise ValueError(
            f"its other scores are of a model with cosine {similarities[0]} to the published one, "
            f"but this one has {similarities[1]}"
        )
    sums = {name: metrics[name] + before[name] for name in ("train_seconds", "updates")}
    recorded = earlier.get("earlier") or []
    known = {name for one in recorded for name in one["trainings"]}
    kept = [name for name in before["tried"] if name not in known]
    circumstances = {name: earlier[name] for name in EarlierSchema.model_fields if name in earlier}
    curves = {**earlier.get("curves", {}), **later.get("curves", {})}
    return {
        **later,
        "metrics": {**metrics, **sums},
        "curves": curves,
        "earlier": [*recorded, {"trainings": kept, **circumstances}],
    }


def check_result(result: Any, metrics: type[MetricsSchema]) -> None:
    """Validate a result with these metrics (ValueError: naming a missing or wrong key)."""
    check(ResultSchema[metrics], result)  # type: ignore[valid-type]


def check(schema: type[BaseModel], value: Any) -> None:
    """Validate an object of a file (ValueError: naming a missing or wrong key)."""
    try:
        schema.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        # If a value may have several types, the deepest error is the most specific.
        deepest = max(found, key=lambda one: len(one["loc"]))
        keys = [key for key in map(str, deepest["loc"]) if key and not _ALTERNATIVE.fullmatch(key)]
        if all(one["type"] == "extra_forbidden" for one in found):
            raise NewerResult(f"{'.'.join(keys)}: this version knows no such key") from None
        is_table = isinstance(deepest["input"], dict)
        but = "" if is_table else f", but is {reprlib.repr(deepest['input'])}"
        message = deepest["msg"].removeprefix("Value error, ").partition(" or instance of")[0]
        raise ValueError(f"{'.'.join(keys)}: {message}{but}") from None


def load_result(path: Path, metrics: type[MetricsSchema]) -> Result:
    """Read a result from a file of any name.

    Raises OSError, or ValueError if it is not a valid result.
    """
    content = from_json(path.read_bytes(), allow_inf_nan=False)
    result: Result = complete_result(content, path.parent)
    check_result(result, metrics)
    return result


def read_result(
    path: Path,
    metrics: type[MetricsSchema],
    say: Say = lambda _: None,
    *,
    raised: tuple[type[Exception], ...] = (),
) -> Result | None:
    """Read <results>/<table>/<scale or study>/<name>.json; None if it is missing or invalid.

    say: called with the error of an invalid file. raised: errors of an existing file that are
    raised instead.
    """
    try:
        result = load_result(path, metrics)
        own = run_of(result).result
        if path.parts[-3:] != own.parts[-3:]:
            raise ValueError(f"it is the result {own}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except raised:
        raise
    except (OSError, ValueError) as error:
        say(f"{Path(*path.parts[-4:])} is not a complete result ({error})")
        return None
    return result


def run_of(result: Result) -> Run:
    """Return the run of a result."""
    cell = {f.name: result[f.name] for f in fields(Run) if f.name != "study"}
    return Run(**cell, study=Study.read(result.get("study")))


def curves_of(result: Result) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """Return updates and losses by training and kind ("valid" or "train") of a result."""
    curves = {
        (name, kind): [(step, loss) for step, loss in one[kind]]
        for name, one in (result.get("curves") or {}).items()
        for kind in ("valid", "train")
        if one.get(kind)
    }
    own = result["metrics"].get("curve")
    if own and not curves:
        curves["", "valid"] = [(step, loss) for step, loss in own]
    return curves


def mismatch(
    result: Result, run: Run, config: Mapping[str, Any], data: Mapping[str, Any] | None
) -> list[str]:
    """List the differences between a result and the record of a run with this configuration.

    data: description of the run's data; None if it is missing and cannot be compared.
    """
    reasons = [
        f"{key}: {result[key]} -> {getattr(run, key)}"
        for key in ("table", "scale", "row", "attention", "seed")
        if result[key] != getattr(run, key)
    ]
    reasons += differences(result["config"], config)
    if data is not None and provenance.different_folders(result["data"], data):
        reasons.append("the data differs")
    return reasons


def read_results(folder: Path, metrics: type[MetricsSchema], say: Say) -> list[Result]:
    """Read all results in a folder; `say` is called with the error of each invalid file."""
    loaded = (read_result(path, metrics, say) for path in sorted(folder.glob("*.json")))
    return [result for result in loaded if result is not None]


def newest_by_attention(results: Iterable[Result]) -> dict[str, Result]:
    """Return the result that was finished last under each attention."""
    by_age = sorted(results, key=lambda result: result["finished_at"])
    return {result["attention"]: result for result in by_age}


def other_data(results: Sequence[Result]) -> dict[str, str]:
    """Describe, by run name, each result whose data differ from the newest with its attention."""
    newest, sentences = newest_by_attention(results), dict[str, str]()
    for result in results:
        name = run_of(result).name
        folders = provenance.different_folders(result["data"], newest[result["attention"]]["data"])
        if folders:
            words = f" ({', '.join(folders)})" if any(folders) else ""
            sentences[name] = f"`{name}`, whose data differ from those of the newest result{words}."
    return sentences


def other_code(results: Iterable[Result], *, is_study: bool) -> list[str]:
    """Describe each cell whose seeds were made before and after an edit of the code.

    Committed code has its commits listed, which is enough for results that are no study's.
    """
    made: dict[str, list[Result]] = {}
    for result in results:
        cell = f"`{result['row']}` under {result['attention']} attention"
        made.setdefault(cell, []).append(result)
    return [
        f"Different code made the seeds of {cell}, and the mean is over all; `--force` makes them "
        "anew."
        for cell, own in made.items()
        if len({result.get("sources") for result in own}) > 1
        and (is_study or any(result["commit"].endswith("-dirty") for result in own))
    ]
