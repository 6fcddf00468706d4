"""promptfoo configurations: prompts × tests become tasks, providers become models.

Deterministic assertions, rubrics and inline JavaScript are checked as promptfoo does; everything without an
equivalent is listed with its line, and leaves its test unchecked. Reading a configuration executes nothing.
"""

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from proctor.evaluators.expect import ASSERT, JAVASCRIPT, NOT_SUPPORTED, RUBRIC, SET, base_type, is_supported
from proctor.json_values import JsonMap, JsonObject, as_list, as_map, as_number, as_text, maps_in, parse_json
from proctor.models.providers import PROVIDERS
from proctor.plan.source import KeyPath, PlanSource, bytes_of, table_text, text_of
from proctor.plan.yaml_loader import read_source
from proctor.tasks.task import NotRead, ReadOptions, Task, TaskSet

PROMPTFOO = "promptfoo"
UNREAD_KEYS = (
    "scenarios",
    "extensions",
    "redteam",
    "tracing",
    "derivedMetrics",
    "nunjucksFilters",
    "outputPath",
    "evaluateOptions",
    "commandLineOptions",
    "env",
    "sharing",
)
SCRIPTS = (".js", ".ts", ".mjs", ".cjs", ".py", ".rb")
_ALIASES = {"google": "gemini", "togetherai": "together", "vertex": "gemini"}
_WIRE = ("chat", "messages", "completion", "responses")
_EXPECTED = re.compile(r"(not-)?([a-z][a-z-]*)(?:\(([\d.]+)\))?\s*:\s*(.*)", re.DOTALL)
_CSV_TYPES = {"fn": "javascript", "eval": "javascript", "grade": RUBRIC}
_CSV_THRESHOLD = ("latency", "cost", "levenshtein", "rouge-n", "starts-with")
_TEMPLATES = ImmutableSandboxedEnvironment(keep_trailing_newline=True)


def is_configuration(keys: set[str]) -> bool:
    """Whether top-level keys are those of a configuration."""
    return "prompts" in keys and bool(keys & {"providers", "targets"})


def read_promptfoo(file: Path, options: ReadOptions) -> TaskSet:
    """The tasks of a configuration: every test with every prompt. Its providers are the models."""
    reader = _ConfigReader(read_source(bytes_of(file), file=str(file)), file.absolute(), options)
    tasks = tuple(reader.tasks())
    return TaskSet(tasks=tasks, not_read=tuple(reader.not_read), models=tuple(reader.models.values()))


class _ConfigReader:
    def __init__(self, source: PlanSource, file: Path, options: ReadOptions) -> None:
        self._source, self._file, self._options = source, file, options
        self._folder = file.parent
        self._config = as_map(source.data)
        self.not_read: list[NotRead] = []
        self.models: dict[str, str] = {}
        """Our models by the labels and ids of providers."""

    def _note(self, reason: str, path: KeyPath) -> None:
        skipped = NotRead(file=self._file, line=self._source.place(path).line, reason=reason)
        if skipped not in self.not_read:
            self.not_read.append(skipped)

    def tasks(self) -> Iterator[Task]:
        """Every test × combination of its variables × prompt."""
        for key in UNREAD_KEYS:
            if key in self._config:
                self._note(f"`{key}` has no equivalent", (key,))
        self._read_providers()
        prompts = list(self._prompts())
        default = self._default_test()
        several = len(prompts) > 1
        for number, (test, path) in enumerate(self._tests(), 1):
            merged = _merged(default, test)
            expect = self._expectation(merged, path)
            combinations = list(self._combinations(merged, path))
            for index, variables in enumerate(combinations, 1):
                for label, text in prompts:
                    if not _allowed(label, merged.get("prompts")):
                        continue
                    name = as_text(test, "description") or f"test-{number}"
                    name += f".{index}" if len(combinations) > 1 else ""
                    name += f" / {label}" if several else ""
                    task = self._task(name, text, variables, merged, expect, path)
                    if task:
                        yield task

    def _task(
        self, name: str, text: str, variables: JsonMap, test: JsonMap, expect: JsonMap, path: KeyPath
    ) -> Task | None:
        options = as_map(test, "options")
        try:
            system, prompt = _messages(_rendered_prompt(text, variables))
            prompt = as_text(options, "prefix") + prompt + as_text(options, "suffix")
            filled = _with_context(as_map(_rendered(expect, variables)), variables, prompt)
        except (ValueError, TemplateError) as error:
            self._note(f"`{name}`: {error}", path)
            return None
        return Task(
            name=name,
            title=name,
            file=self._file,
            line=self._source.place(path).line if path else 1,
            format=PROMPTFOO,
            prompt=prompt,
            system=system,
            expect={ASSERT: filled} if filled else {},
            models=self._models_of(test, path),
        )

    def _models_of(self, test: JsonMap, path: KeyPath) -> tuple[str, ...]:
        if test.get("provider"):
            self._note(
                "`provider` of a test has no equivalent; its prompts go to all models", (*path, "provider")
            )
        filters = test.get("providers")
        if filters is None:
            return ()
        labels = [label for label in self.models if _allowed(label, filters)]
        return tuple(dict.fromkeys(self.models[label] for label in labels)) or ("none",)

    # Providers

    def _read_providers(self) -> None:
        key = "providers" if "providers" in self._config else "targets"
        written = self._config.get(key)
        for number, provider in enumerate(
            written if isinstance(written, list) else [written] if written else []
        ):
            path: KeyPath = (key, number) if isinstance(written, list) else (key,)
            name = provider if isinstance(provider, str) else as_text(provider, "id")
            if not name and isinstance(provider, dict) and len(provider) == 1:
                name = str(next(iter(provider)))
            model = model_of(name)
            if not model:
                self._note(f"the provider `{name}` has no equivalent", path)
                continue
            label = as_text(provider, "label") if isinstance(provider, dict) else ""
            self.models[label or name] = model
            if isinstance(provider, dict) and as_map(provider, "config"):
                self._note(f"`config` of `{name}`: set its parameters in models_config.yaml", path)

    # Prompts

    def _prompts(self) -> Iterator[tuple[str, str]]:
        written = self._config.get("prompts")
        for number, entry in enumerate(
            written if isinstance(written, list) else [written] if written else []
        ):
            path: KeyPath = ("prompts", number) if isinstance(written, list) else ("prompts",)
            label = as_text(entry, "label") if isinstance(entry, dict) else ""
            text = entry if isinstance(entry, str) else as_text(entry, "raw") or as_text(entry, "id")
            for index, prompt in enumerate(self._prompt_texts(text, path)):
                yield label or f"prompt-{number + 1}{f'.{index + 1}' if index else ''}", prompt

    def _prompt_texts(self, text: str, path: KeyPath) -> list[str]:
        name = text.removeprefix("file://")
        is_file = text.startswith("file://") or (
            "\n" not in text and "{{" not in text and re.fullmatch(r"[\w./*-]+\.\w{2,5}", text) is not None
        )
        if not is_file:
            if re.match(r"(exec:|\w+://)", text):
                self._note(f"the prompt `{text[:60]}` has no equivalent", path)
                return []
            return [text] if text else []
        files = self._files(name)
        texts = list[str]()
        for file in files:
            if file.suffix in (".txt", ".md", ".j2"):
                texts += [part.strip() for part in re.split(r"^---\s*$", text_of(file), flags=re.MULTILINE)]
            elif file.suffix == ".json":
                texts.append(text_of(file))
            elif file.suffix in (".yaml", ".yml"):
                texts.append(json.dumps(read_source(bytes_of(file), file=str(file)).data))
            else:
                self._note(f"the prompt file `{name}` has no equivalent", path)
        if not files:
            self._note(f"there is no file {name}", path)
        return [text for text in texts if text.strip()]

    def _files(self, pattern: str) -> list[Path]:
        root = self._folder.resolve()
        matches = sorted(self._folder.glob(pattern)) if not pattern.startswith("/") else [Path(pattern)]
        return [file for file in matches if file.is_file() and file.resolve().is_relative_to(root)]

    # Tests

    def _default_test(self) -> JsonMap:
        default = self._config.get("defaultTest")
        if isinstance(default, str):
            for file in self._files(default.removeprefix("file://")):
                return as_map(read_source(bytes_of(file), file=str(file)).data)
            self._note(f"there is no file {default}", ("defaultTest",))
            return {}
        return as_map(default)

    def _tests(self) -> Iterator[tuple[JsonMap, KeyPath]]:
        written = self._config.get("tests")
        if written is None:
            yield {}, ()
            return
        for number, entry in enumerate(written if isinstance(written, list) else [written]):
            path: KeyPath = ("tests", number) if isinstance(written, list) else ("tests",)
            if isinstance(entry, dict) and "path" not in entry:
                yield entry, path
            elif isinstance(entry, str):
                yield from ((test, path) for test in self._test_file(entry, path))
            else:
                self._note("tests made by a script have no equivalent", path)

    def _test_file(self, written: str, path: KeyPath) -> Iterator[JsonMap]:
        name = written.removeprefix("file://")
        if "://" in name or name.partition(":")[0].endswith(SCRIPTS):
            self._note(f"the tests `{written}` have no equivalent", path)
            return
        files = self._files(name)
        if not files:
            self._note(f"there is no file {name}", path)
        for file in files:
            if file.suffix == ".csv":
                text, note = table_text(file)
                if note:
                    self.not_read.append(NotRead(file=file, reason=note))
                yield from (self._csv_test(row, path) for row in csv.DictReader(io.StringIO(text)))
            elif file.suffix == ".jsonl":
                yield from (as_map(parse_json(line)) for line in text_of(file).splitlines() if line.strip())
            elif file.suffix in (".yaml", ".yml", ".json"):
                data = read_source(bytes_of(file), file=str(file)).data
                yield from (as_map(test) for test in (data if isinstance(data, list) else [data]))
            else:
                self._note(f"the tests `{written}` have no equivalent", path)

    def _csv_test(self, row: Mapping[str, str], path: KeyPath) -> JsonMap:
        variables = {key: value for key, value in row.items() if key and not key.startswith("__")}
        test: JsonObject = {"vars": variables}
        expected = [
            value for key, value in row.items() if key and re.fullmatch(r"__expected\d*", key) and value
        ]
        if expected:
            test["assert"] = [assertion_of(value) for value in expected]
        if row.get("__description"):
            test["description"] = row["__description"]
        if row.get("__threshold"):
            test["threshold"] = float(row["__threshold"])
        options = {key: row[f"__{key}"] for key in ("prefix", "suffix") if row.get(f"__{key}")}
        if options:
            test["options"] = options
        for key in ("__providerOutput",):
            if row.get(key):
                self._note(f"the column `{key}` has no equivalent", path)
        return test

    # Variables

    def _combinations(self, test: JsonMap, path: KeyPath) -> Iterator[JsonMap]:
        variables = as_map(test, "vars")
        fixed = as_map(test, "options").get("disableVarExpansion") is True
        axes: dict[str, list[object]] = {}
        for name, value in variables.items():
            if isinstance(value, list) and value and isinstance(value[0], str) and not fixed:
                axes[name] = [self._value(each, name, path) for each in value]
            elif isinstance(value, str) and value.startswith("file://") and "*" in value and not fixed:
                axes[name] = [text_of(file).strip() for file in self._files(value.removeprefix("file://"))]
            else:
                axes[name] = [self._value(value, name, path)]
        for values in itertools.product(*axes.values()):
            yield dict(zip(axes, values, strict=True))

    def _value(self, value: object, name: str, path: KeyPath) -> object:
        if not isinstance(value, str) or not value.startswith("file://"):
            return value.removesuffix("\n") if isinstance(value, str) else value
        files = self._files(value.removeprefix("file://"))
        if files and files[0].suffix in (".yaml", ".yml"):
            return json.dumps(read_source(bytes_of(files[0]), file=str(files[0])).data)
        if files and files[0].suffix not in SCRIPTS:
            return text_of(files[0]).strip()
        self._note(f"the variable `{name}` from `{value}` has no equivalent", path)
        return ""

    # Assertions

    def _expectation(self, test: JsonMap, path: KeyPath) -> JsonObject:
        """The group of assertions of a test; empty: it has none."""
        options, written = as_map(test, "options"), as_list(test, "assert")
        if not written and not as_list(test, "inherited"):
            return {}
        problem = "`assertScoringFunction` has no equivalent" if test.get("assertScoringFunction") else ""
        if options.get("transform") or options.get("postprocess"):
            problem = "`transform` has no equivalent"
        if problem:
            # Its assertions are about another text, or do not decide.
            self._note(problem, path)
            return {"assertions": [{"type": NOT_SUPPORTED, "value": problem}]}
        judge = model_of(_provider_name(options.get("provider"))) or self._options.judge
        inherited = as_list(test, "inherited")
        assertions = [
            *self._assertions(inherited, ("defaultTest",), judge),
            *self._assertions(written, path, judge),
        ]
        group: JsonObject = {"assertions": assertions}
        if (threshold := as_number(test, "threshold")) is not None:
            group["threshold"] = threshold
        return group

    def _assertions(self, written: Sequence[object], path: KeyPath, judge: str) -> Iterator[JsonObject]:
        for number, entry in enumerate(written):
            assertion = dict(as_map(entry))
            place: KeyPath = (*path, "assert", number)
            if reference := as_text(assertion, "$ref"):
                template = as_map(self._config, "assertionTemplates", reference.rpartition("/")[2])
                assertion = {**template, **{key: value for key, value in assertion.items() if key != "$ref"}}
            name = as_text(assertion, "type")
            if name == SET:
                inner = list(self._assertions(as_list(assertion, "assert"), place, judge))
                if inner:
                    yield _members_of({**assertion, "assertions": inner})
                continue
            if problem := self._problem(assertion, name, judge):
                self._note(problem, place)
                yield _members_of({**assertion, "type": NOT_SUPPORTED, "value": problem})
                continue
            if name.removeprefix("not-") == RUBRIC:
                assertion["judge"] = model_of(_provider_name(assertion.get("provider"))) or judge
            if isinstance(value := assertion.get("value"), str) and value.startswith("file://"):
                (file,) = self._files(value.removeprefix("file://"))
                is_data = file.suffix in (".json", ".yaml", ".yml")
                assertion["value"] = (
                    read_source(bytes_of(file), file=str(file)).data if is_data else text_of(file).strip()
                )
            yield _members_of(assertion)

    def _problem(self, assertion: JsonMap, name: str, judge: str) -> str:
        if not is_supported(name):
            return f"the assertion `{name}` has no equivalent"
        if name.removeprefix("not-") == JAVASCRIPT and not isinstance(assertion.get("value"), str):
            return f"the value of the assertion `{name}` has no equivalent"
        if assertion.get("transform") or assertion.get("rubricPrompt"):
            return f"`transform` or `rubricPrompt` of the assertion `{name}` has no equivalent"
        if name.removeprefix("not-") == RUBRIC:
            own = _provider_name(assertion.get("provider"))
            if own and not model_of(own):
                return f"the judge `{own}` of `{name}` has no equivalent"
            if not own and not judge:
                return f"the assertion `{name}` names no judge; give one with --judge MODEL"
        value = assertion.get("value")
        if isinstance(value, str) and value.startswith("file://"):
            files = self._files(value.removeprefix("file://"))
            if len(files) != 1 or files[0].suffix in SCRIPTS:
                return f"the value `{value}` of the assertion `{name}` has no equivalent"
        return ""


def _with_context(group: JsonMap, variables: JsonMap, prompt: str) -> JsonMap:
    """The group with what its scripts may refer to."""
    members = [
        {**one, "context": {"vars": dict(variables), "prompt": prompt}}
        if base_type(one) == JAVASCRIPT
        else _with_context(one, variables, prompt)
        for one in maps_in(group, "assertions")
    ]
    return {**group, "assertions": members} if members else group


def _members_of(assertion: JsonMap) -> JsonObject:
    names = ("type", "value", "threshold", "weight", "metric", "judge", "assertions")
    return {name: assertion[name] for name in names if assertion.get(name) is not None}


def _provider_name(value: object) -> str:
    return value if isinstance(value, str) else as_text(value, "id")


def _merged(default: JsonMap, test: JsonMap) -> JsonObject:
    """A test with what `defaultTest` adds: below its own values; assertions before its own."""
    merged: JsonObject = {**default, **test}
    for name in ("vars", "options", "metadata"):
        merged[name] = {**as_map(default, name), **as_map(test, name)}
    inherited = [] if as_map(merged, "options").get("disableDefaultAsserts") else as_list(default, "assert")
    merged["inherited"], merged["assert"] = inherited, as_list(test, "assert")
    return merged


def _allowed(label: str, filters: object) -> bool:
    """Whether a filter of labels or ids, `prefix:*` or a bare prefix, includes this one."""
    if filters is None:
        return True
    names = filters if isinstance(filters, list) else [filters]
    return any(
        label == name
        or (isinstance(name, str) and label.startswith(f"{name.removesuffix('*').rstrip(':')}:"))
        for name in names
    )


def model_of(provider: str) -> str:
    """Our name of the model of a provider; empty: there is none."""
    if provider == "echo":
        return "scripted/echo"
    name, colon, model = provider.partition(":")
    kind, _, rest = model.partition(":")
    if kind in _WIRE and rest:
        model = rest
    name = _ALIASES.get(name, name)
    return f"{name}/{model}" if colon and model and name in PROVIDERS else ""


def assertion_of(text: str) -> JsonObject:
    """The assertion of a cell `__expected`: `type:value`, `type(0.8):value`; otherwise the text itself."""
    match = _EXPECTED.fullmatch(text.strip())
    name = _CSV_TYPES.get(match[2], match[2]) if match else ""
    if text.strip() in ("is-json", "contains-json", "is-refusal", "is-xml"):
        return {"type": text.strip()}
    if match is None or not (is_supported(name) or name in ("javascript", "python", "similar", "factuality")):
        return {"type": "equals", "value": text}
    assertion: JsonObject = {"type": f"{match[1] or ''}{name}", "value": match[4].strip()}
    if match[3]:
        assertion["threshold"] = float(match[3])
    elif name in _CSV_THRESHOLD:
        assertion["threshold"] = 0.75
    return assertion


def _rendered(value: object, variables: JsonMap) -> object:
    if isinstance(value, str):
        return _TEMPLATES.from_string(value).render(variables) if "{{" in value or "{%" in value else value
    if isinstance(value, Mapping):
        return {name: _rendered(part, variables) for name, part in value.items()}
    if isinstance(value, list):
        return [_rendered(part, variables) for part in value]
    return value


def _rendered_prompt(text: str, variables: JsonMap) -> str:
    """A prompt with its variables; in a JSON prompt, values are escaped."""
    # Values may contain variables themselves.
    values = {name: _rendered(value, variables) for name, value in variables.items()}
    if text.lstrip().startswith(("[", '{"')):
        values = {
            name: json.dumps(value)[1:-1] if isinstance(value, str) else value
            for name, value in values.items()
        }
    return str(_rendered(text, values))


def _messages(text: str) -> tuple[str, str]:
    """System prompt and prompt of a rendered text, which may be a list of messages. Raises `ValueError`."""
    if not text.lstrip().startswith("["):
        return "", text
    try:
        messages = parse_json(text)
    except ValueError:
        return "", text
    if not isinstance(messages, list) or not all(isinstance(one, dict) and "role" in one for one in messages):
        return "", text
    roles = [as_text(one, "role") for one in messages]
    system = "\n\n".join(as_text(one, "content") for one in messages if as_text(one, "role") == "system")
    if roles.count("user") != 1 or set(roles) - {"system", "user"} or roles[-1] != "user":
        raise ValueError("a conversation of several messages has no equivalent")
    return system, as_text(messages[-1], "content")
