"""Models whose every exchange is kept with the attempt that had it.

For those who ask models themselves and know nothing of records: evaluators.

Knows nothing of who asks or why.
"""

from asyncio import CancelledError

from proctor.errors import AttemptError
from proctor.model import Answer, Model, Request
from proctor.session import Message, ModelCall, Record


class RecordingModel:
    """The same models; what is asked and answered is recorded."""

    def __init__(self, models: Model, record: Record) -> None:
        self._models = models
        self._record = record

    async def answer(self, request: Request) -> Answer:
        """Answer as the model does, and keep what was said and what it cost."""
        for message in request.messages:
            self._record(Message(role=message["role"], content=str(message["content"])))
        try:
            answer = await self._models.answer(request)
        except AttemptError as error:
            self._record(ModelCall(model=request.model, status=error.reason, error=str(error)))
            raise
        except CancelledError:
            self._record(ModelCall(model=request.model, status="cancelled"))
            raise
        self._record(answer.call)
        self._record(Message(role="assistant", content=answer.text))
        return answer
