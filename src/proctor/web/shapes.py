"""What the answers about runs and sessions have in common, member by member, as the interface documents it.

Members are named as the store's columns are: `runId`, `costUsd`.

Knows nothing of where the answers come from.
"""

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

RunId = Annotated[str, Path(description="The run's id, or an unambiguous beginning of it.", max_length=200)]
SessionId = Annotated[
    str, Path(description="The session's id, or an unambiguous beginning of it.", max_length=300)
]


class Shape(BaseModel):
    """An answer whose members are spelled as in the tables."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


class ChartShape(Shape):
    """A plot."""

    caption: str
    svg: str


class ChartsAnswer(Shape):
    """The plots of a run, or of a session."""

    by: str = ""
    remark: str = Field(default="", description="Why there is no plot where one might be expected.")
    charts: list[ChartShape]


class TextShape(Shape):
    """A text, or the beginning of a long one."""

    text: str
    size: int = Field(description="Of the whole: characters; bytes where only the beginning was read.")
    is_cut: bool = Field(description="Whether there is more behind it.")


class TextAnswer(TextShape):
    """A piece of a long text."""

    offset: int
