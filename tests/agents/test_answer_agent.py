"""Agents in this process: one call whose answer becomes a file, and functions."""

from pathlib import Path
from typing import Any

import pytest

from proctor.agents._function import AgentContext, FunctionAgent
from proctor.agents.answer import AnswerAgent, completed
from proctor.errors import AgentError, UsageError
from proctor.model import Answer
from proctor.session import Message, ModelCall, Usage


class Models:
    """Answers every request with a text; keeps the requests."""

    def __init__(self, text: str = "answer") -> None:
        self.text, self.requests = text, list[Any]()

    async def answer(self, request: Any) -> Answer:
        self.requests.append(request)
        return Answer(text=self.text, call=ModelCall(model=request.model, usage=Usage(input_tokens=1)))


CODE = "Here:\n```python\ndef f():\n    return 1\n```\n"


async def test_the_code_of_one_answer_becomes_a_file(place: Any) -> None:
    models = Models(CODE)
    done = await place.work(
        AnswerAgent(file="below/f.py", entry_point="f", prefix="import os\n"),
        "Write f.",
        models=models,
        model="m",
        seed=7,
    )
    assert (place.folder / "below/f.py").read_text() == "def f():\n    return 1\n"
    (request,) = models.requests
    assert (request.model, request.seed, request.parameters) == ("m", 7, {})
    assert request.messages == [{"role": "user", "content": "Write f."}]
    assert done.output == CODE
    assert [(event.role, event.content) for event in place.recorded(Message)] == [("assistant", CODE)]
    await place.work(AnswerAgent(), models=Models("plain"), model="m")
    await place.work(AnswerAgent(file="below/f.py"), models=Models("again"), model="m")
    assert (place.folder / "solution.py").read_text() == "plain"
    assert (place.folder / "below/f.py").read_text() == "again"


async def test_an_answer_needs_a_model_and_stays_in_the_folder(place: Any) -> None:
    for given in ({}, {"model": "m"}, {"models": Models()}):
        with pytest.raises(AgentError, match="the agent `answer` has no model to call"):
            await place.work(AnswerAgent(), **given)
    for file in ("../x.py", "/etc/x.py"):
        with pytest.raises(UsageError, match="leads out of the task's folder"):
            await place.work(AnswerAgent(file=file), models=Models(), model="m")
    assert AnswerAgent().availability({}).ready is True


async def test_a_function_asks_models_through_proctor(place: Any) -> None:
    models = Models()

    async def agent(prompt: str, context: AgentContext) -> str:
        first = await context.ask(prompt, temperature=0)
        second = await context.ask([{"role": "system", "content": "s"}], model="other")
        return f"{first.text} {second.text} {context.folder.name} {context.model}"

    done = await place.work(FunctionAgent(agent), "Do it.", models=models, model="m", seed=3)
    assert done.output == "answer answer tree m"
    first, second = models.requests
    assert (first.model, first.messages) == ("m", [{"role": "user", "content": "Do it."}])
    assert (first.parameters, first.seed) == ({"temperature": 0}, 3)
    assert (second.model, second.messages) == ("other", [{"role": "system", "content": "s"}])
    assert len(place.recorded(ModelCall)) == 2
    with pytest.raises(UsageError, match="this run has no models to call"):
        await place.work(FunctionAgent(agent), "Do it.", model="m")


async def test_what_a_function_returns_is_the_answer(place: Any) -> None:
    def later(prompt: str) -> Any:
        async def answer() -> str:
            return f"later {prompt}"

        return answer()

    for function, answer in (
        (lambda prompt: prompt, "Fix it."),
        (lambda: {"a": "ü", "b": Path("/x")}, '{"a": "ü", "b": "/x"}'),
        (later, "later Fix it."),
        (lambda prompt: None, ""),
        (lambda prompt, *, context=None: 1, "1"),
        (lambda prompt, /: ["ü"], '["ü"]'),
        (lambda *both: type(both[1]).__name__, "AgentContext"),
        (lambda prompt, context, more=1: more, "1"),
    ):
        place.events.clear()
        assert (await place.work(FunctionAgent(function))).output == answer
        assert [event.content for event in place.recorded(Message)] == ([answer] if answer else [])


@pytest.mark.parametrize(
    ("answer", "entry_point", "prefix", "program"),
    [
        ("x = 1", "", "", "x = 1"),
        ("```\na\n```\ntext\n```python\nb\n```", "", "", "a\n\nb\n"),
        ("```\na\n```\n```\ndef f():\n    pass\n```", "f", "", "def f():\n    pass\n"),
        ("```\na\n```\n```\nb\n```", "f", "def f():\n", "def f():\n    a\n"),
        ("def f(): pass", "f", "import os\n\ndef f():\n", "import os\n\ndef f(): pass"),
        ("async def f(): pass", "f", "import os\n", "async def f(): pass"),
        ("    return 1", "f", "def f():\n", "def f():\n    return 1"),
        ("return 1\n\nx", "f", "def f():\n", "def f():\n    return 1\n\n    x"),
        ("", "f", "def f():\n", "def f():\n"),
    ],
)
def test_the_program_in_an_answer(answer: str, entry_point: str, prefix: str, program: str) -> None:
    assert completed(answer, entry_point, prefix) == program
