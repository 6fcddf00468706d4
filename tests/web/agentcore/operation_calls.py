"""Calls of operations without a server, by the names of their functions."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from proctor.web.agentcore.operation import Operation
from proctor.web.agentcore.service import Service


class OperationCalls:
    """The operations of a module as functions; a request has to fit the shape of its operation."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._by_name = {each.answer.__name__: each for each in operations}

    def __getattr__(self, name: str) -> Callable[[Service, Mapping[str, Any]], Any]:
        operation = self._by_name[name]

        def call(service: Service, request: Mapping[str, Any]) -> Any:
            assert list(operation.shape.flaws(dict(request), "")) == []
            return operation.answer(service, request)

        return call

    @property
    def table(self) -> list[tuple[object, ...]]:
        """Name, route, status, members of the query and plane of each."""
        return [
            (each.name, each.route, each.status, tuple(each.query), each.plane)
            for each in self._by_name.values()
        ]
