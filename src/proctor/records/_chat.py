"""Messages in the form of chat completions, told as a story.

Half of all tools keep their conversations in this form, each with members of its own beside it.

Knows nothing of those.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from proctor.records._story import Story
from proctor.records._values import a_map, a_text, a_word, args_of, maps_in, text_of


def tell(story: Story, message: Mapping[str, Any], at: datetime | None = None) -> None:
    """Tell one message: what was said in it, the tools it calls, or the result it brings."""
    role, said = message.get("role"), text_of(message.get("content"))
    if role in ("system", "developer"):
        story.say("system", said, at)
    elif role == "user":
        story.say("user", said, at)
    elif role == "assistant":
        story.say("assistant", said, at)
        tell_calls(story, message, at)
    elif role in ("tool", "function"):
        # The tool-free form of old calls its functions by name only.
        story.answer(a_word(message.get("tool_call_id")), said, at=at)


def tell_calls(story: Story, message: Mapping[str, Any], at: datetime | None = None) -> None:
    """Tell the tools a message calls."""
    for call in maps_in(message.get("tool_calls")):
        asked = a_map(call, "function") or call
        story.call(a_text(asked.get("name")), args_of(asked.get("arguments")), a_word(call.get("id")), at)
    if old := a_map(message, "function_call"):
        story.call(a_text(old.get("name")), args_of(old.get("arguments")), at=at)
