"""Tools of roles, and the world whose state the tools of both sides read and write.

A tool does one of these:

    set, delete, returns: change the state and return a value by expressions, once each `require` holds
    python: call a function of a file with the state and the arguments
    http: send the arguments to a server
    command: run a program, confined, with JSON on standard input and output

A call changes the state as a whole or not at all. What the caller did wrong is the result of the call; a tool
that breaks raises `WorldError`.
"""

import asyncio
import importlib.util
import inspect
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType, UnionType
from typing import TYPE_CHECKING, NotRequired, Required, TypedDict, get_args, get_origin, get_type_hints
from urllib.parse import quote

from proctor.dialogue.templating import check_expression, check_template, evaluate, fill, names_in, value_of
from proctor.errors import AttemptError, UsageError
from proctor.evaluators.expect import check_answer
from proctor.item import digest_of
from proctor.json_values import JsonMap, JsonObject, as_map, as_text, parse_json, tool_arguments
from proctor.processes import CouldNotStart, run
from proctor.processes.scratch import scratch_folder
from proctor.session import ToolCall

if TYPE_CHECKING:
    from proctor.model import ToolRequest
    from proctor.runner import Services

TIMEOUT_SECONDS = 60.0
LONGEST_RESULT = 50_000
"""Maximum characters of a result that a model sees."""
LARGEST_ANSWER_BYTES = 8 * 1024 * 1024
KINDS = ("returns", "set", "delete", "python", "http", "command")
CODE_KINDS = ("python", "http", "command")
_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[")
_JSON_TYPES: Mapping[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}


class WorldError(AttemptError):
    """A tool is broken: neither side is at fault."""

    reason = "tool_failed"


class ToolRefusal(Exception):
    """The call was not valid; the caller gets the message as the result."""


Requirement = TypedDict("Requirement", {"that": Required[str], "else": NotRequired[str]})
"""A condition of a call, and the message to the caller where it does not hold."""


class HttpTool(TypedDict, total=False):
    """A tool behind a server."""

    url: Required[str]
    """A template: `http://shop.example/orders/{{ order_id }}`."""
    method: str
    headers: Mapping[str, str]
    shares_state: bool
    """Whether the server gets the state with the arguments and returns `result` and `state`."""


class ToolSpec(TypedDict):
    """A tool as a role stores it."""

    name: Required[str]
    description: NotRequired[str]
    parameters: NotRequired[JsonMap]
    require: NotRequired[Sequence[Requirement]]
    set: NotRequired[JsonMap]
    delete: NotRequired[Sequence[str]]
    returns: NotRequired[str]
    python: NotRequired[str]
    http: NotRequired[HttpTool]
    command: NotRequired[Sequence[str]]
    timeout_sec: NotRequired[float]
    digest: NotRequired[str]
    """Changes with the file of a function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One tool call of a side."""

    side: str
    tool: str
    arguments: JsonMap
    success: bool
    result: str


class DialogueWorld:
    """The state of a dialogue's world, and the calls that were made so far."""

    def __init__(self, state: JsonMap) -> None:
        self.initial = state
        self.state: JsonObject = deepcopy(dict(state))
        self.actions: list[Action] = []

    def to_json(self) -> JsonObject:
        """The world as stored in a checkpoint."""
        return {"state": self.state, "actions": [asdict(action) for action in self.actions]}

    def restore(self, saved: JsonMap) -> None:
        """Continue from a checkpoint."""
        self.state = deepcopy(dict(as_map(saved, "state")))
        actions = saved.get("actions")
        assert isinstance(actions, list)
        self.actions = [Action(**action) for action in actions]


def changes(before: object, after: object, path: str = "") -> Iterator[tuple[str, object]]:
    """The paths whose values differ, with the new value; None where it was deleted."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in [*before, *(name for name in after if name not in before)]:
            member = f"{path}.{name}" if path else str(name)
            yield from changes(before.get(name), after.get(name), member)
    elif before != after:
        yield path, after


def merged(base: object, changed: object) -> object:
    """A state with the members of another one, mapping by mapping."""
    if not isinstance(base, Mapping) or not isinstance(changed, Mapping):
        return deepcopy(changed)
    return {**base, **{name: merged(base.get(name), value) for name, value in changed.items()}}


class SideTools:
    """The tools of one side in one dialogue."""

    def __init__(
        self,
        specs: Sequence[ToolSpec],
        side: str,
        world: DialogueWorld,
        services: "Services",
        *,
        folder: Path,
        is_under_test: bool = True,
        sandbox: object = None,
    ) -> None:
        """`folder` is where files of functions and programs are, `sandbox` how the config confines these."""
        self._sandbox = sandbox
        self.specs = {spec["name"]: spec for spec in specs}
        self._side, self._world, self._services, self.folder = side, world, services, folder
        self._is_under_test = is_under_test
        self.exchanges: dict[int, list[JsonObject]] = {}
        """Messages with calls and results, by the number of utterances before them."""

    def definitions(self) -> list[JsonMap]:
        """The tools as function definitions for a model."""
        return [
            {
                "type": "function",
                "function": {
                    "name": spec["name"],
                    "description": spec.get("description", ""),
                    "parameters": parameters_of(spec),
                },
            }
            for spec in self.specs.values()
        ]

    async def exchange(self, text: str, requests: Sequence["ToolRequest"], number: int) -> list[JsonObject]:
        """Execute the calls of a model's answer; the messages that its next request contains."""
        calls = [
            {
                "id": request.id,
                "type": "function",
                "function": {"name": request.name, "arguments": request.arguments},
            }
            for request in requests
        ]
        messages: list[JsonObject] = [{"role": "assistant", "content": text, "tool_calls": calls}]
        for request in requests:
            result = await self.call(request.name, request.arguments)
            messages.append({"role": "tool", "tool_call_id": request.id, "content": result})
        self.exchanges.setdefault(number, []).extend(messages)
        return messages

    async def call(self, name: str, arguments: object) -> str:
        """Execute one call and record it; the result for the caller."""
        parsed, started = tool_arguments(arguments), time.monotonic()
        try:
            value, success = await self._execute(name, parsed), True
        except ToolRefusal as refusal:
            value, success = f"Error: {refusal}", False
        except WorldError as error:
            self._record(name, parsed, success=False, result=str(error), started=started)
            raise
        result = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        self._record(name, parsed, success=success, result=result[:LONGEST_RESULT], started=started)
        return result[:LONGEST_RESULT]

    def record_again(self) -> None:
        """Record the calls of a restored world in this session too."""
        for action in self._world.actions:
            if action.side == self._side:
                self._record_call(action, None)

    def _record(self, name: str, arguments: JsonMap, *, success: bool, result: str, started: float) -> None:
        action = Action(side=self._side, tool=name, arguments=arguments, success=success, result=result)
        self._world.actions.append(action)
        self._record_call(action, (time.monotonic() - started) * 1000)

    def _record_call(self, action: Action, duration_ms: float | None) -> None:
        # Evaluators and counts of tools are about the side under test.
        name = action.tool if self._is_under_test else f"{self._side}: {action.tool}"
        self._services.record(
            ToolCall(
                name=name,
                args=action.arguments,
                success=action.success,
                result=action.result,
                duration_ms=duration_ms,
            )
        )

    async def _execute(self, name: str, arguments: JsonMap) -> object:
        spec = self.specs.get(name)
        if spec is None:
            raise ToolRefusal(f"there is no tool {name}. There are: {', '.join(self.specs)}")
        if problem := argument_problem(spec, arguments):
            raise ToolRefusal(problem)
        arguments = {**_defaults(spec), **arguments}
        if not any(kind in spec for kind in CODE_KINDS):
            result, self._world.state = apply(spec, self._world.state, arguments)
            return result
        limit = spec.get("timeout_sec", TIMEOUT_SECONDS)
        try:
            async with asyncio.timeout(limit):
                if "python" in spec:
                    return await self._call_function(spec, arguments)
                if "http" in spec:
                    return await self._call_server(spec, spec["http"], arguments)
                return await self._call_program(spec, arguments)
        except TimeoutError as error:
            raise WorldError(f"the tool {name} took longer than {limit:g} s") from error

    async def _call_function(self, spec: ToolSpec, arguments: JsonMap) -> object:
        function, state = load_function(spec["python"], self.folder), deepcopy(self._world.state)
        try:
            if inspect.iscoroutinefunction(function):
                result = await function(state, **arguments)
            else:
                result = await asyncio.to_thread(function, state, **arguments)
            result = json.loads(json.dumps(result))
            self._world.state = json.loads(json.dumps(state))
        except (ValueError, LookupError) as error:
            raise ToolRefusal(str(error) or type(error).__name__) from error
        except (Exception, SystemExit) as error:
            # A function that exits ends its call, not the batch.
            raise WorldError(f"the tool {spec['name']} raised {type(error).__name__}: {error}") from error
        return result

    async def _call_server(self, spec: ToolSpec, http: HttpTool, arguments: JsonMap) -> object:
        quoted = {name: quote(str(value), safe="") for name, value in arguments.items()}
        for name, argument in quoted.items():
            # No encoding keeps these from naming the folder above.
            if argument in (".", "..") and name in http["url"]:
                raise ToolRefusal(f"`{name}` cannot be `{argument}`")
        url = fill(http["url"], quoted, f"`url` of the tool {spec['name']}")
        body: JsonMap = arguments
        if http.get("shares_state"):
            body = {"tool": spec["name"], "arguments": arguments, "state": self._world.state}
        status, text = await send(
            url,
            body,
            method=http.get("method", "POST"),
            headers=expanded_headers(http.get("headers", {}), self._services.environment),
            what=f"the tool {spec['name']}",
        )
        if 400 <= status < 500:
            raise ToolRefusal(text.strip()[:1000] or f"the server answered {status}")
        if not 200 <= status < 300:
            raise WorldError(f"the tool {spec['name']}: the server answered {status}: {text[:200]}")
        try:
            value = parse_json(text)
        except ValueError:
            value = text
        return self._result_of(spec, value) if http.get("shares_state") else value

    async def _call_program(self, spec: ToolSpec, arguments: JsonMap) -> object:
        message = {"tool": spec["name"], "arguments": arguments, "state": self._world.state}
        command = list(spec["command"])
        with scratch_folder("tool") as folder:
            own = folder.resolve()
            confinement = self._services.sandbox.confine(
                "check",
                self._sandbox,
                folders=[own],
                home=own,
                read=[self.folder],
                named=[*command, *(str(self.folder / word) for word in command)],
                variables={"HOME": str(own), "TMPDIR": str(own)},
            )
            try:
                ended = await run(
                    command,
                    folder=self.folder,
                    environment=self._services.environment,
                    attempt=self._services.session_id,
                    typed=json.dumps(message, ensure_ascii=False),
                    keep=LARGEST_ANSWER_BYTES,
                    confinement=confinement,
                )
            except CouldNotStart as error:
                raise WorldError(f"the tool {spec['name']} could not be started: {error}") from error
        if ended.exit_code:
            output = ended.output.strip()[-500:]
            raise WorldError(f"the tool {spec['name']} exited with {ended.exit_code}: {output}")
        try:
            return self._result_of(spec, parse_json(ended.output))
        except ValueError as error:
            raise WorldError(f"the tool {spec['name']} did not print JSON: {ended.output[:200]}") from error

    def _result_of(self, spec: ToolSpec, answer: object) -> object:
        """The result of an answer that may contain a new state."""
        if not isinstance(answer, Mapping) or not {"result", "error", "state"} & answer.keys():
            return answer
        if answer.get("error"):
            raise ToolRefusal(str(answer["error"]))
        if "state" in answer:
            if not isinstance(answer["state"], Mapping):
                raise WorldError(f"the tool {spec['name']} returned a state that is not a mapping")
            self._world.state = dict(answer["state"])
        return answer.get("result", "done")


def apply(spec: ToolSpec, state: JsonMap, arguments: JsonMap) -> tuple[object, JsonObject]:
    """The result of a tool written as data, and the new state. Raises `ToolRefusal`."""
    name, changed = spec["name"], deepcopy(dict(state))

    def values() -> JsonObject:
        return {**changed, **arguments, "state": changed, "arguments": arguments}

    try:
        for requirement in spec.get("require", ()):
            if not evaluate(requirement["that"], values(), f"`require` of {name}"):
                message = requirement.get("else") or f"not allowed: {requirement['that']} does not hold"
                raise ToolRefusal(fill(message, values(), f"`else` of {name}"))
        for path, written in spec.get("set", {}).items():
            value = deepcopy(value_of(written, values(), f"`set: {path}` of {name}"))
            _assign(changed, path, value, values())
        for deleted in spec.get("delete", ()):
            _assign(changed, deleted, _DELETED, values())
        result = evaluate(spec["returns"], values(), f"`returns` of {name}") if "returns" in spec else "done"
    except UsageError as error:
        raise ToolRefusal(str(error)) from error
    return deepcopy(result), changed


_DELETED = object()


def _assign(state: JsonObject, place: str, value: object, values: JsonMap) -> None:
    """Assign a value at a path such as `orders[order_id].status`."""
    keys = [evaluate(key, values, place) if is_expression else key for key, is_expression in path_of(place)]
    target: object = state
    for key in keys[:-1]:
        target = _inside(target, key, place)
    last = keys[-1]
    if isinstance(target, list):
        _inside(target, last, place)
    elif not isinstance(target, dict):
        raise ToolRefusal(f"{place} is no place in the state")
    if value is _DELETED:
        _inside(target, last, place)
        del target[last]  # type: ignore[arg-type]
    else:
        target[last] = value  # type: ignore[index]


def _inside(container: object, key: object, place: str) -> object:
    try:
        return container[key]  # type: ignore[index]
    except (KeyError, IndexError, TypeError) as error:
        raise ToolRefusal(f"{place}: there is no `{key}`") from error


@lru_cache(maxsize=1024)
def path_of(text: str) -> tuple[tuple[str, bool], ...]:
    """The keys of a path, and which of them are expressions. Raises `UsageError`."""
    match = re.match(r"[A-Za-z_]\w*", text)
    if match is None:
        raise UsageError(f"`{text}` is no path such as `orders[order_id].status`")
    keys, position = [(match[0], False)], match.end()
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise UsageError(f"`{text}` is no path such as `orders[order_id].status`")
        position = step.end()
        if step[1]:
            keys.append((step[1], False))
            continue
        depth, start = 1, position
        while position < len(text) and depth:
            depth += {"[": 1, "]": -1}.get(text[position], 0)
            position += 1
        if depth:
            raise UsageError(f"`{text}` has a bracket that is not closed")
        keys.append((text[start : position - 1], True))
    return tuple(keys)


def parameters_of(spec: ToolSpec) -> JsonMap:
    """The JSON Schema of a tool's arguments. Parameters without `default` are required."""
    written = spec.get("parameters") or {}
    if written.get("type") == "object":
        return written
    properties = {name: {"type": kind} if isinstance(kind, str) else kind for name, kind in written.items()}
    required = [name for name, kind in properties.items() if "default" not in as_map(kind)]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _defaults(spec: ToolSpec) -> JsonObject:
    properties = as_map(parameters_of(spec), "properties")
    return {name: as_map(kind)["default"] for name, kind in properties.items() if "default" in as_map(kind)}


def argument_problem(spec: ToolSpec, arguments: JsonMap) -> str:
    """Why arguments are not valid; empty: they are."""
    if set(arguments) == {"unreadable"}:
        return f"the arguments are no JSON object: {arguments['unreadable']}"
    check = check_answer({"json_schema": dict(parameters_of(spec))}, json.dumps(arguments))[0]
    explanation = check.explanation.replace("answer does not fit its schema", "the arguments")
    return "" if check.passed else explanation


def load_function(name: str, folder: Path) -> Callable[..., object]:
    """A function `file.py:function` of a folder, or `package.module:function`. Raises `UsageError`."""
    module_name, _, attribute = name.rpartition(":")
    path = folder / (module_name if module_name.endswith(".py") else f"{module_name.replace('.', '/')}.py")
    try:
        if path.is_file():
            module = _load_module(str(path.resolve()), path.stat().st_mtime_ns)
        else:
            module = importlib.import_module(module_name)
        function: object = getattr(module, attribute)
    except Exception as error:
        raise UsageError(f"cannot load the tool `{name}`: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise UsageError(f"`{name}` is not a function")
    return function


@lru_cache(maxsize=64)
def _load_module(path: str, modified: int) -> ModuleType:  # noqa: ARG001 (a changed file is loaded again)
    name = f"proctor_tools_{digest_of(path)[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def with_signature(spec: ToolSpec, folder: Path) -> ToolSpec:
    """A tool with description, parameters and digest of its Python function, where it has one."""
    if "python" not in spec:
        return spec
    function = load_function(spec["python"], folder)
    complete: ToolSpec = {**spec}
    complete.setdefault("description", inspect.getdoc(function) or "")
    complete.setdefault("parameters", _signature_of(function))
    try:
        complete["digest"] = digest_of(inspect.getsource(inspect.getmodule(function) or function))[:16]
    except (OSError, TypeError):
        pass
    return complete


def _signature_of(function: Callable[..., object]) -> JsonObject:
    hints, parameters = get_type_hints(function), JsonObject()
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        schema = _schema_of(hints.get(parameter.name))
        if parameter.default is not parameter.empty:
            schema["default"] = parameter.default
        parameters[parameter.name] = schema
    return parameters


def _schema_of(hint: object) -> JsonObject:
    origin = get_origin(hint) or hint
    if isinstance(hint, UnionType):
        return {"anyOf": [_schema_of(each) for each in get_args(hint)]}
    if hint is type(None):
        return {"type": "null"}
    name = _JSON_TYPES.get(origin) if isinstance(origin, type) else None
    if name == "array" and get_args(hint):
        return {"type": name, "items": _schema_of(get_args(hint)[0])}
    return {"type": name} if name else {}


def tool_problems(spec: ToolSpec, state_names: Sequence[str]) -> Iterator[str]:
    """Problems of a tool, given the names of the world's state."""
    kinds = [kind for kind in KINDS if kind in spec]
    code = [kind for kind in CODE_KINDS if kind in spec]
    if not kinds:
        yield f"does nothing: it needs one of {', '.join(KINDS)}"
    if len(code) > 1 or (code and len(kinds) > 1):
        yield f"has {' and '.join(kinds)}, which exclude each other"
    try:
        check_answer({"json_schema": dict(parameters_of(spec))}, "{}")
    except Exception as error:
        yield f"has `parameters` that are no JSON Schema: {str(error).splitlines()[0]}"
        return
    known = {*state_names, *as_map(parameters_of(spec), "properties"), "state", "arguments"}
    for where, text in _expressions(spec):
        if wrong := check_expression(text):
            yield f"has `{where}: {text}`, which is no expression: {wrong}"
        elif unknown := sorted(names_in(text, is_expression=True) - known):
            yield f"has `{where}: {text}`, which speaks of `{unknown[0]}`, neither parameter nor state"
    for requirement in spec.get("require", ()):
        if wrong := check_template(requirement.get("else", ""))[1]:
            yield f"has an `else` that cannot be read: {wrong}"


def _expressions(spec: ToolSpec) -> Iterator[tuple[str, str]]:
    yield from (("require", each["that"]) for each in spec.get("require", ()))
    if "returns" in spec:
        yield "returns", spec["returns"]
    yield from (
        (f"set {target}", text) for target, text in spec.get("set", {}).items() if isinstance(text, str)
    )
    for path in (*spec.get("set", {}), *spec.get("delete", ())):
        # The root of a path is a name of the state too.
        yield from (("set", key) for key, _ in path_of(path)[:1])
        yield from ((f"set {path}", key) for key, is_expression in path_of(path) if is_expression)


async def send(
    url: str, body: JsonMap, *, method: str = "POST", headers: Mapping[str, str] | None = None, what: str
) -> tuple[int, str]:
    """Send JSON to a server; its status and answer. Raises `WorldError` without an answer."""
    # Loaded here: few dialogues need it.
    import aiohttp

    has_body, data = method.upper() not in ("GET", "DELETE", "HEAD"), b""
    try:
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(
                method,
                url,
                json=dict(body) if has_body else None,
                headers=dict(headers or {}),
                # A redirect would send headers with keys to an unknown address.
                allow_redirects=False,
            ) as answer,
        ):
            async for chunk in answer.content.iter_chunked(65_536):
                data += chunk
                if len(data) > LARGEST_ANSWER_BYTES:
                    break
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise WorldError(f"{what}: no answer of {url}: {error or type(error).__name__}") from error
    if len(data) > LARGEST_ANSWER_BYTES:
        raise WorldError(f"{what}: the answer of {url} is larger than {LARGEST_ANSWER_BYTES >> 20} MiB")
    return answer.status, data.decode("utf-8", "replace")


def expanded_headers(headers: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Headers with `$NAME` replaced by the variable of that name."""
    return {
        name: re.sub(r"\$(\w+)", lambda match: environment.get(match[1], match[0]), as_text(value))
        for name, value in headers.items()
    }
