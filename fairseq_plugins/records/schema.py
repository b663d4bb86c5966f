"""Schema of results."""

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PositiveInt

from fairseq_plugins.records.data import DataDescription
from fairseq_plugins.records.metrics import Count, MetricsSchema, NotNegative, Open, Strict
from fairseq_plugins.records.recipe import trainings_of

M = TypeVar("M", bound=MetricsSchema)
Table = dict[str, Any]


def _is_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


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
    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{40}(-dirty)?|release [\w.+-]+|unknown)$")]
    sources: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None  # not in older results
    versions: _Versions
    hardware: _Hardware
    wall_seconds: NotNegative
    finished_at: Annotated[str, AfterValidator(_is_time)]
