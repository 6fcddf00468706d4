"""Tasks as they are read from the files of each format, and written in our own, are as recorded."""

import dataclasses
import errno
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.errors import PlanError, UsageError
from proctor.sandbox import container
from proctor.tasks import amp, exercism, formats, harbor
from proctor.tasks.formats import read_task_set, write_task_set
from proctor.tasks.markdown import read_task, read_tasks
from proctor.tasks.promptfoo import assertion_of, model_of
from proctor.tasks.task import MARKDOWN as MARKDOWN_FORMAT
from proctor.tasks.task import ReadOptions, TaskCheck, TaskSet, texts_of
from recorded_files import check

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where neither Podman nor Docker works."""
    monkeypatch.setattr(container, "engine", lambda *_: None)


def plain(value: object, folder: Path) -> Any:
    """A value as JSON: without the members that have their defaults, and without the folder of the test."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = {}
        for field in dataclasses.fields(value):
            member = getattr(value, field.name)
            default = (
                field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
            )
            if member != default and field.name != "digest":
                members[field.name] = plain(member, folder)
        return members
    if isinstance(value, Mapping):
        return {str(key): plain(each, folder) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, folder) for each in value]
    if isinstance(value, str | Path):
        return str(value).replace(str(folder), "FOLDER")
    return value


def read_all(folder: Path, options: ReadOptions | None = None) -> Any:
    """What is read of each entry of a folder, or why nothing is."""
    read: dict[str, Any] = {}
    for entry in sorted(folder.iterdir()):
        try:
            read[entry.name] = plain(read_task_set(entry, options), folder)
        except PlanError as error:
            read[entry.name] = plain([str(problem) for problem in error.problems], folder)
        except UsageError as error:
            read[entry.name] = plain(str(error), folder)
    return read


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)


# --- promptfoo ---

PROMPTFOO = """\
scenarios: []
env: {}
prompts:
  - 'Say {{word}}'
  - file://prompts/*.txt
  - {label: chat, id: 'file://chat.json'}
  - prompts/data.yaml
  - prompts/script.py
  - prompts/none.txt
  - exec:run
  - 'https://example.com/x'
  - {raw: 'Raw {{word}}', label: 'raw:one'}
  - file://../outside.txt
providers:
  - openai:chat:gpt-4o-mini
  - {id: echo, label: 'mirror:a'}
  - {'anthropic:messages:claude-x': {config: {a: 1}}}
  - {id: 'google:gemini-x', config: {temperature: 1}}
  - file://own.py
  - 'openai:'
assertionTemplates:
  polite: {type: not-contains, value: sorry, weight: 2}
defaultTest:
  vars: {word: cat, tone: calm}
  threshold: 0.5
  options: {prefix: '<', suffix: '>'}
  assert:
    - {$ref: '#/assertionTemplates/polite', weight: 3}
tests:
  - description: files
    vars: {word: 'file://words/*.txt', data: 'file://words/data.yaml', one: 'file://words/a.txt', bad: 'file://x.py'}
    assert: [{type: contains, value: 'file://words/a.txt'}, {type: contains-json, value: 'file://words/data.yaml'}]
  - vars: {word: [a, b], other: [c, d], list: [1, 2]}
    options: {disableDefaultAsserts: true}
    assert:
      - type: assert-set
        threshold: 0.3
        assert: [{type: icontains, value: '{{word}}'}, {type: python, value: x}]
      - {type: assert-set, assert: [{type: python, value: x}]}
      - {type: llm-rubric, value: good, provider: 'openai:gpt-4o'}
      - {type: not-llm-rubric, value: bad}
      - {type: llm-rubric, value: good, provider: 'file://x.py'}
      - {type: contains, value: a, transform: x}
      - {type: contains, value: 'file://none.txt'}
      - {type: contains, value: 'file://words/script.js'}
    prompts: ['raw:*', prompt-1]
    providers: [mirror]
  - vars: {word: [a, b]}
    options: {disableVarExpansion: true, postprocess: y}
    provider: openai:gpt-4
    providers: ['nobody:*']
    assertScoringFunction: f
    prompts: prompt-1
  - description: only scripts
    options: {disableDefaultAsserts: true}
    assert: [{type: javascript, value: x}]
  - description: 'broken {{'
    vars: {word: '{% if %}'}
    prompts: prompt-1
  - file://tests.csv
  - file://tests.jsonl
  - tests.yaml
  - tests.json
  - tests.txt
  - none.yaml
  - 'https://example.com/tests'
  - 'tests.py:make'
  - {path: 'file://make.py'}
"""


def test_what_is_read_of_promptfoo_is_as_recorded(tmp_path: Path) -> None:
    write(tmp_path, {"outside.txt": "no"})
    folder = tmp_path / "folder"
    messages = [{"role": "system", "content": "Be {{tone}}"}, {"role": "user", "content": '"{{word}}"'}]
    write(
        folder,
        {
            "promptfooconfig.yaml": PROMPTFOO,
            "prompts/a.txt": "First {{word}}\n---\n\nSecond {{word}}\n---\n",
            "prompts/b.txt": "\ufeffThird",
            "prompts/data.yaml": "- role: user\n  content: yaml {{word}}\n",
            "prompts/script.py": "x",
            "chat.json": json.dumps(messages).replace('\\"', "'"),
            "words/a.txt": " apple \n",
            "words/b.txt": "pear",
            "words/data.yaml": "a: 1\n",
            "words/script.js": "x",
            "tests.csv": (
                "word,__expected,__expected2,__description,__threshold,__prefix,__suffix,__providerOutput\n"
                "x,contains:X,levenshtein: y,row one,0.4,p,s,given\n"
                "y,plain answer,,,,,,\n"
                "z,,,,,,,\n"
            ),
            "tests.jsonl": '{"vars": {"word": "l1"}}\n\n{"vars": {"word": "l2"}}\n',
            "tests.yaml": "vars: {word: alone}\n",
            "tests.json": '[{"vars": {"word": "j1"}}, {"vars": {"word": "j2"}}]',
            "tests.txt": "x",
        },
    )
    read = read_task_set(folder / "promptfooconfig.yaml", ReadOptions(judge="scripted/ok"))
    check(RECORDED / "promptfoo.txt", plain(read, tmp_path))


SMALL_CONFIGURATIONS = {
    "targets": "prompts: Hi\ntargets: echo\n",
    "default-file": "prompts: Hi\nproviders: [echo]\ndefaultTest: file://default.yaml\ntests: t.json\n",
    "default-missing": "prompts: Hi\nproviders: [echo]\ndefaultTest: file://none.yaml\n",
    "several-messages": (
        'prompts: [\'[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]\', '
        '\'[{"role": "assistant", "content": "a"}]\', \'[1]\', \'[x\', \'  [{"role": "user", '
        '"content": "{{a}}"}]\']\nproviders: [echo]\ntests: [{vars: {a: \'line"quote\'}}]\n'
    ),
    "nested": "prompts: ['{{a}}']\nproviders: [echo]\ntests: [{vars: {a: '{{b}}', b: deep}}]\n",
    "rubric": "prompts: Hi\nproviders: [echo]\ntests: [{assert: [{type: llm-rubric, value: x}]}]\n",
}


def test_small_configurations_of_promptfoo_are_as_recorded(tmp_path: Path) -> None:
    read = {}
    for name, text in SMALL_CONFIGURATIONS.items():
        folder = tmp_path / name
        files = {"default.yaml": "assert: [{type: equals, value: x}]\n", "t.json": '{"vars": {"a": 1}}'}
        write(folder, {"promptfooconfig.yaml": text, **files})
        try:
            read[name] = plain(read_task_set(folder / "promptfooconfig.yaml"), folder)
        except UsageError as error:
            read[name] = plain(str(error), folder)
    check(RECORDED / "promptfoo-small.txt", read)


@pytest.mark.parametrize(
    ("prompts", "words", "names"),
    [
        ("[Hi]", "x", ["test-1"]),
        ("[Hi]", "[x, y]", ["test-1.1", "test-1.2"]),
        ("[{label: a, raw: Hi}, {label: b, raw: Ho}]", "x", ["test-1 / a", "test-1 / b"]),
        (
            "[{label: a, raw: Hi}, {label: b, raw: Ho}, {label: c, raw: Hu}]",
            "[x, y]",
            [f"test-1.{number} / {label}" for number in (1, 2) for label in "abc"],
        ),
    ],
)
def test_a_task_is_named_by_its_test_its_variables_and_its_prompt(prompts, words, names, tmp_path):
    text = f"prompts: {prompts}\nproviders: [echo]\ntests:\n  - vars: {{word: {words}}}\n"
    file = tmp_path / "promptfooconfig.yaml"
    file.write_text(text)
    assert [task.name for task in read_task_set(file).tasks] == names


def test_names_of_providers_and_cells() -> None:
    assert model_of("anthropic:messages:claude-x") == "anthropic/claude-x"
    assert model_of("google:gemini-x") == "gemini/gemini-x"
    assert model_of("http://host") == ""
    assert assertion_of("latency:") == {"type": "latency", "value": "", "threshold": 0.75}
    assert assertion_of("note: it") == {"type": "equals", "value": "note: it"}


# --- Harbor and Terminal-Bench ---

GOOD: dict[str, str | bytes] = {
    "task.toml": 'schema_version = "1"\n',
    "instruction.md": "<!-- canary x -->\n\n# CANARY y\nDo it.\n",
    "environment/Dockerfile": "FROM x\n",
    "tests/test.sh": "true\n",
}
HARBOR: dict[str, dict[str, str | bytes | None]] = {
    "plain": {},
    "full": {
        "task.toml": (
            'multi_step_reward_strategy = "final"\n'
            '[task]\nname = "org/full"\ndescription = "All of it"\n'
            '[metadata]\ndifficulty = "hard"\nauthor = "A"\nyear = 3\n'
            '[agent]\ntimeout_sec = 90.0\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.test"]\n'
            '[verifier]\ntimeout_sec = 30.0\n[verifier.env]\nTOKEN = "a b"\n'
            '[environment]\nnetwork_mode = "public"\n[environment.env]\nMODE = "x"\n'
        ),
        "environment/Dockerfile": (
            "FROM x\nENV A=1 B='2 3' C\nWORKDIR /app\nWORKDIR sub\nRUN mkdir -p /app/x\n"
            "COPY a.txt \\\n  folder ./\nADD b.txt /app/sub/renamed.txt\nCOPY --chown=me c.txt new.txt\n"
            "COPY folder /app/sub/deep/\nCOPY c.txt /app/sub/deep/\n"
        ),
        "environment/a.txt": "a",
        "environment/b.txt": "b",
        "environment/c.txt": "c",
        "environment/folder/d.txt": "d",
        "environment/folder/.gitkeep": "",
        "solution/solve.sh": "solve",
        "solution/more.txt": "more",
        "tests/extra.txt": "extra",
    },
    "no dockerfile": {"environment/Dockerfile": None, "environment/a/b.txt": "b"},
    "no dockerfile and no file": {"environment/Dockerfile": None, "environment/.gitkeep": ""},
    "workdir": {"task.toml": '[environment]\nworkdir = "/work"\n'},
    "workdir of the system": {"task.toml": '[environment]\nworkdir = "/usr/x"\n'},
    "workdir is the root": {"task.toml": '[environment]\nworkdir = "/"\n'},
    "workdir is temporary": {"task.toml": '[environment]\nworkdir = "/tmp/x"\n'},
    "workdir is relative": {"task.toml": '[environment]\nworkdir = "x"\n'},
    "prebuilt": {"task.toml": '[environment]\ndocker_image = "org/image"\n'},
    "windows": {"task.toml": '[environment]\nos = "windows"\n'},
    "gpu": {"task.toml": "[environment]\ngpus = 1\n"},
    "tpu": {"task.toml": '[environment]\ntpu = "v4"\n'},
    "mcp": {"task.toml": "[[environment.mcp_servers]]\nname = 'x'\n"},
    "healthcheck": {"task.toml": '[environment.healthcheck]\ncommand = "x"\n'},
    "verifier image": {"task.toml": '[verifier.environment]\nimage = "x"\n'},
    "verifier mode": {"task.toml": '[verifier]\nenvironment_mode = "separate"\n'},
    "compose": {"environment/docker-compose.yml": "services: {}\n"},
    "runs": {"environment/Dockerfile": "FROM x\nRUN " + "word " * 30 + "\n"},
    "copies from": {"environment/Dockerfile": "FROM x\nCOPY --from=b a c\n"},
    "copies an address": {"environment/Dockerfile": "FROM x\nADD https://x.test/a b\n"},
    "copies nothing": {"environment/Dockerfile": "FROM x\nCOPY a\n"},
    "copies a missing file": {"environment/Dockerfile": "FROM x\nWORKDIR /app\nCOPY none .\n"},
    "copies from outside": {"environment/Dockerfile": "FROM x\nWORKDIR /app\nCOPY ../task.toml .\n"},
    "copies elsewhere": {"environment/Dockerfile": "FROM x\nWORKDIR /app\nCOPY Dockerfile /opt/x\n"},
    "copies a file that is no text": {
        "environment/Dockerfile": "FROM x\nWORKDIR /app\nCOPY a.bin .\n",
        "environment/a.bin": b"\xff\x00",
    },
    "no environment": {"environment/Dockerfile": None},
    "no instruction": {"instruction.md": None},
    "an empty instruction": {"instruction.md": "# canary\n\n"},
    "no tests": {"tests/test.sh": None},
    "tests that install": {"tests/test.sh": "apt-get -y install curl\n"},
    "steps": {
        "task.toml": (
            '[verifier]\ntimeout_sec = 5\n[[steps]]\nname = "one"\nmin_reward = 0.5\n'
            '[[steps]]\nname = "two"\n[steps.min_reward]\nreward = 0.25\n[steps.verifier]\ntimeout_sec = 7\n'
        ),
        "steps/one/instruction.md": "One",
        "steps/one/tests/test.sh": "one",
        "steps/one/solution/solve.sh": "first",
        "steps/two/instruction.md": "Two",
        "steps/two/workdir/file.txt": "x",
        "solution/solve.sh": "whole",
    },
    "a step without a folder": {"task.toml": '[[steps]]\nname = "one"\n'},
    "a step without a name": {"task.toml": "[[steps]]\nmin_reward = 1\n", "steps/x": "x"},
    "a step outside": {"task.toml": '[[steps]]\nname = "../../plain"\n', "steps/x": "x"},
    "a step with a script": {
        "task.toml": '[[steps]]\nname = "one"\n',
        "steps/one/instruction.md": "One",
        "steps/one/workdir/setup.sh": "x",
    },
}


def test_what_is_read_of_harbor_is_as_recorded(tmp_path: Path) -> None:
    for name, changes in HARBOR.items():
        files = {key: text for key, text in {**GOOD, **changes}.items() if text is not None}
        write(tmp_path / name, files)
    read = {name: plain(harbor.read_harbor(tmp_path / name, ReadOptions()), tmp_path) for name in HARBOR}
    check(RECORDED / "harbor.txt", read)


TERMINAL: dict[str, dict[str, str | bytes | None]] = {
    "plain": {},
    "full": {
        "task.yaml": (
            "instruction: |\n  Do it.\n  Twice.\ndifficulty: easy\ncategory: files\nauthor_name: A\n"
            "max_test_timeout_sec: 11\nmax_agent_timeout_sec: 22\n"
        ),
        "Dockerfile": "FROM x\nWORKDIR /work\nENV A=1\nCOPY a.txt .\n",
        "a.txt": "a",
        "solution.sh": "solve",
        "docker-compose.yaml": "services: {a: {}}\n",
        "tests/test_a.py": "import a\n",
    },
    "a script": {"run-tests.sh": "uv run pytest\n", "tests/test_a.py": None},
    "a script and tests": {"run-tests.sh": "pytest $TEST_DIR/test_a.py -rA\n"},
    "a script that installs": {"run-tests.sh": "apk add x\n"},
    "tests with a network": {"tests/test_a.py": "curl\n"},
    "no tests": {"tests/test_a.py": None},
    "no instruction": {"task.yaml": "instruction: ' '\n"},
    "several containers": {"docker-compose.yml": "services: {a: {}, b: {}}\n"},
    "an image": {"Dockerfile": "FROM x\nRUN apt-get install y\n"},
    "broken": {"task.yaml": "instruction: [\n"},
}


def test_what_is_read_of_terminal_bench_is_as_recorded(tmp_path: Path) -> None:
    good: dict[str, str | bytes] = {
        "task.yaml": f"instruction: {'word ' * 30}\n",
        "tests/test_a.py": "x = 1\n",
    }
    for name, changes in TERMINAL.items():
        files = {key: text for key, text in {**good, **changes}.items() if text is not None}
        write(tmp_path / name, files)
    read = {
        name: plain(harbor.read_terminal_bench(tmp_path / name, ReadOptions()), tmp_path) for name in TERMINAL
    }
    check(RECORDED / "terminal-bench.txt", read)


# --- Exercism ---

EXERCISE: dict[str, str | bytes] = {
    ".docs/instructions.md": " Do it. \n",
    ".docs/introduction.md": "Intro",
    ".docs/instructions.append.md": "More",
    ".meta/example.py": "answer",
    "two_fer.py": "stub",
    "two_fer_test.py": "test",
    "build/out.txt": "x",
    "image.bin": b"\xff\x00",
    "notes.txt": "notes",
}


def config(**files: list[str]) -> str:
    usual = {"solution": ["two_fer.py"], "test": ["two_fer_test.py"], "example": [".meta/example.py"]}
    return json.dumps({"blurb": "Say it", "files": {**usual, **files}})


EXERCISES: dict[str, dict[str, str | bytes | None]] = {
    "python": {".meta/config.json": config()},
    "javascript": {
        ".meta/config.json": config(solution=["a.js"], test=["a.spec.js"], example=[".meta/proof.ci.js"]),
        "a.js": "stub",
        "a.spec.js": "xtest('a'); xit('b'); xdescribe('c'); extest('d')",
        ".meta/proof.ci.js": "answer",
    },
    "java": {
        ".meta/config.json": config(
            solution=["A.java", "B.java"], test=["ATest.java"], example=[".meta/C.java"]
        ),
        "A.java": "stub",
        "B.java": "stub",
        "ATest.java": '  @Disabled("x")\n  @Test\n',
        ".meta/C.java": "answer",
    },
    "rust": {
        ".meta/config.json": config(
            solution=["src/lib.rs", "Cargo.toml"],
            test=["tests/a.rs"],
            example=[".meta/example.rs", ".meta/Cargo-example.toml", ".meta/none.rs"],
        ),
        "src/lib.rs": "stub",
        "Cargo.toml": "c",
        "tests/a.rs": "t",
        ".meta/example.rs": "answer",
        ".meta/Cargo-example.toml": "c",
    },
    "several": {
        ".meta/config.json": config(
            solution=["a.cpp", "a.h", "CMakeLists.txt"], test=["t.cpp"], example=[".meta/x.h"]
        ),
        "a.cpp": "c",
        "a.h": "h",
        "t.cpp": "t",
        ".meta/x.h": "answer",
    },
    "no blurb": {".meta/config.json": config().replace("Say it", "")},
    "no solution": {".meta/config.json": config(solution=[])},
    "no test": {".meta/config.json": config(test=[])},
    "a missing test": {".meta/config.json": config(test=["other_test.py"])},
    "an unknown language": {".meta/config.json": config(solution=["a.xyz"])},
    "no instructions": {
        ".meta/config.json": config(),
        **dict.fromkeys([name for name in EXERCISE if name.startswith(".docs")]),
    },
    "no answer": {".meta/config.json": config(example=[])},
    "broken": {".meta/config.json": "{"},
}


def test_what_is_read_of_exercises_is_as_recorded(tmp_path: Path) -> None:
    read = {}
    for name, changes in EXERCISES.items():
        folder = tmp_path / name
        write(folder, {key: text for key, text in {**EXERCISE, **changes}.items() if text is not None})
        read[name] = plain(exercism.read_exercise(folder, ReadOptions()), tmp_path)
    check(RECORDED / "exercism.txt", read)


# --- Rows ---


def test_what_is_read_of_rows_is_as_recorded(tmp_path: Path) -> None:
    function = {
        "task_id": "HumanEval/0",
        "prompt": "def f():\n",
        "entry_point": "f",
        "test": "def check(f): pass",
    }
    mbpp = {"task_id": 3, "text": "Do", "test_list": ["assert a"], "code": "a\r\nb"}
    clone = tmp_path / "clones" / "lib"
    (clone / ".git").mkdir(parents=True)
    patch = "--- a/x.py\n+++ b/x.py\n--- a/gone.py\n+++ /dev/null\n"
    swe = {
        "instance_id": "lib-1",
        "repo": "org/lib",
        "base_commit": "abc",
        "problem_statement": "\n\n" + "word " * 20 + "\nmore",
        "patch": patch,
        "test_patch": "--- a/t.py\n+++ b/t s.py\n+++ b/data.txt\n",
        "FAIL_TO_PASS": '["t.py::a"]',
        "PASS_TO_PASS": ["t.py::b"],
        "created_at": "2024-01-31T10:00:00Z",
        "version": "1",
        "difficulty": "hard",
    }
    lines = "\n".join
    files: dict[str, str | bytes] = {
        "humaneval.jsonl": lines(
            map(
                json.dumps,
                [
                    {**function, "canonical_solution": "  return 1\n"},
                    {**function, "prompt": "def f():"},
                    {**function, "prompt": ""},
                    {**function, "test": ""},
                ],
            )
        ),
        "mbpp.json": json.dumps(
            [
                {**mbpp, "test_imports": ["import x"], "test_setup_code": "y", "challenge_test_list": ["z"]},
                {**mbpp, "text": "", "prompt": "Other"},
                {**mbpp, "test_list": []},
                3,
            ]
        ),
        "one.json": json.dumps({"prompt": "alone", "expected": 3}),
        "swe.jsonl": lines(
            map(
                json.dumps,
                [
                    swe,
                    {
                        **swe,
                        "test_patch": "",
                        "patch": "",
                        "FAIL_TO_PASS": ["u.py::a", "b"],
                        "created_at": "",
                    },
                    {**swe, "test_patch": "", "FAIL_TO_PASS": "x"},
                    {**swe, "repo": "org/none"},
                    {**swe, "base_commit": ""},
                ],
            )
        ),
        "data.csv": (
            "question,answer,id,system\n"
            f"{'long ' * 20},4,one,be kind\n"
            ",x,two,\n"
            '"two\nlines",,,\n'
            "extra,a,b,c,d\n"
        ),
        "data.tsv": "input\ttarget\nq\ta\n",
        "data.jsonl.gz": gzip.compress(b'{"query": {"a": "\xc3\xbc"}, "label": ["x", 1]}\n', mtime=0),
        "mixed.jsonl": lines(
            [
                '{"prompt": "a", "expect": {"contains": "x"}}',
                "{",
                "[1]",
                "",
                '{"prompt": "b", "expected": ""}',
                '{"prompt": "c", "ideal": 1.5}',
                '{"prompt": "d", "ideal": true, "key": 7}',
                '{"other": 1}',
            ]
        ),
        "broken.json": "{",
        "predictions.jsonl": '{"instance_id": "a", "model_patch": "b"}',
    }
    write(tmp_path / "files", files)
    read = read_all(tmp_path / "files", ReadOptions(repos={"org/lib": clone}, setup="make"))
    check(RECORDED / "rows.txt", plain(read, tmp_path))


# --- Our own format ---

MARKDOWN = {
    "full.md": """\
---
start: files/start
check_files: files/check
solution: files/solution
setup: make
check:
  It works: make test
  "it is   FAST.": make bench
expect: {contains: done, equals: null}
timeout: 30
check_timeout: 7
agent: echo
answer: Yes
date: '2024-01-31'
---
# Task: Build it

**Difficulty:** easy
- **Area**: tools
* **Time:** 5 min

```
**No:** fact
# Task: not this
```

## Requirements

- first
* second
3. third
4) [x] fourth
```
- not this
```

### Success Criteria:

- [ ] It works
- [x] It is fast
- plain entry
1. numbered

**Late:** no fact

# Second heading
""",
    "hello_world.txt": "Say hello.\n",
    "facts.txt": "# Plain title #\n\n**Difficulty**: Hard\n**Difficulty:** easy\ntext\n",
    "repo.md": "---\nrepo: clone\nref: v1\nsealed: true\ncheck: make\n---\n# Task: R\n",
    "list.md": "---\ncheck: [a, b]\nempty: true\n---\n# task: list\n\nDo it.\n",
    "crlf.markdown": "\ufeff# Task: C\r\n\r\nDo it.\r\n",
    "both.md": "---\nstart: files/start\nrepo: clone\n---\n# Task: x\n",
    "ref.md": "---\nref: v1\n---\n# Task: x\n",
    "sealed.md": "---\nsealed: true\nhidden: a.tar\n---\n# Task: x\n",
    "hidden.md": "---\nrepo: clone\nhidden: none.tar\ncheck: make\n---\n# Task: x\n",
    "hidden-outside.md": "---\nrepo: clone\nhidden: ../a.tar\ncheck: make\n---\n# Task: x\n",
    "hidden-list.md": "---\nrepo: clone\nhidden: a.tar\ncheck: [make]\n---\n# Task: x\n",
    "date.md": "---\ndate: yesterday\n---\n# Task: x\n",
    "address.md": "---\nrepo: https://x.test/a\n---\n# Task: x\n",
    "no-check.md": "---\ncheck_files: files/check\n---\n# Task: x\n",
    "criterion.md": "---\ncheck: {It workz: make}\n---\n# Task: x\n\n## Success Criteria\n- It works\n",
    "other-criterion.md": "---\ncheck: {zzz: make}\n---\n# Task: x\n\n## Success Criteria\n- It works\n",
    "own-criteria.md": "---\ncheck: {It works: make}\n---\n# Task: x\n",
    "empty-check.md": "---\ncheck: []\n---\n# Task: x\n",
    "wrong-check.md": "---\ncheck: {a: 3}\n---\n# Task: x\n",
    "unknown.md": "---\nchek: a\n---\n# Task: x\n",
    "expect.md": "---\nexpect: {regex: '('}\n---\n# Task: x\n",
    "nothing.md": "---\ncheck: a\n---\n\n \n",
    "no-end.md": "---\ncheck: a\n",
    "no-front.md": "---\n---\n# Task: x\n",
    "outside.md": "---\nstart: ../other\n---\n# Task: x\n",
    "missing.md": "---\nstart: none\n---\n# Task: x\n",
    "itself.md": "---\nstart: .\n---\n# Task: x\n",
}


def test_what_is_read_of_our_own_format_is_as_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder, dict(MARKDOWN))
    write(folder, {f"files/{name}/a.txt": name for name in ("start", "check", "solution")})
    write(tmp_path, {"other/a.txt": "x"})
    write(folder, {"latin.md": b"# Task: x\n\n\xff\n", "task.xyz": "x"})
    (folder / "link.md").symlink_to(tmp_path / "other" / "a.txt")
    read: dict[str, Any] = {}
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        try:
            read[file.name] = plain(read_task(file), tmp_path)
        except PlanError as error:
            read[file.name] = plain(
                [(str(each.at), each.problem, each.remedy) for each in error.problems], tmp_path
            )
        except UsageError as error:
            read[file.name] = plain(str(error), tmp_path)
    check(
        RECORDED / "markdown.txt", json.loads(json.dumps(read, default=str).replace(str(Path.home()), "HOME"))
    )


def test_tasks_of_a_folder_are_read_easiest_first_and_named_by_path_where_names_are_equal(tmp_path):
    text = "# Task: x\n\nDo it.\n"
    names = ["hard/a.md", "easy/a.md", "smoke/b.md", "zoo/c.md", "medium/d.md", "aaa/e.md"]
    write(tmp_path, dict.fromkeys(names, text))
    write(tmp_path, {"notes.md": "# Notes\n", ".hidden/f.md": text, "easy/g.rst": text})
    write(tmp_path, {"zoo/c.md": "---\nstart: c\n---\n" + text, "zoo/c/h.md": text})
    read = read_tasks(tmp_path)

    assert [(task.name, task.difficulty) for task in read] == [
        ("smoke/b", "Smoke Test"),
        ("easy/a", "Easy"),
        ("medium/d", "Medium"),
        ("hard/a", "Hard"),
        ("aaa/e", ""),
        ("zoo/c", ""),
    ]
    assert [task.name for task in read_tasks(tmp_path / "easy")] == ["a"]
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="there is no task in"):
        read_tasks(tmp_path / "none")


def test_what_a_folder_contains_is_found_by_its_files(tmp_path: Path) -> None:
    row = '{"prompt": "a"}\n'
    cases: dict[str, dict[str, str | bytes]] = {
        "rows": {"a.jsonl": row, "b.txt": "x", "c.yaml": "a: 1\n", "d.json": "[]", "e.csv": "prompt\nb\n"},
        "markdown first": {"a.md": "# Task: a\n\nDo\n", "b.jsonl": row},
        "nested first": {"deep/er/" + name: text for name, text in GOOD.items()} | {"b.jsonl": row},
        "too deep": {"1/2/3/4/5/6/7/8/" + name: text for name, text in GOOD.items()} | {"b.jsonl": row},
        "deepest": {"1/2/3/4/5/6/" + name: text for name, text in GOOD.items()},
        "hidden": {".x/" + name: text for name, text in GOOD.items()} | {"b.jsonl": row},
        "exercise": {**EXERCISE, ".meta/config.json": config()},
        "exercise without docs": {".meta/config.json": config(), "b.jsonl": row},
        "terminal": {"task.yaml": "instruction: Do\n", "tests/a.py": "x"},
        "twice": {"a.jsonl": row + row, "b.jsonl": '{"id": "a-1", "prompt": "c"}\n'},
        "promptfoo": {"x.yaml": "prompts: [Hi]\nproviders: [echo]\n", "y.yaml": "prompts: [Hi]\n"},
        "amp": {"x.json": '{"bugCommit": "a", "fixCommit": "b", "testPath": "c"}', "b.jsonl": row},
        "wrong": {"a.json": "{", "b.jsonl": row, "p.jsonl": '{"instance_id": "a", "model_patch": "b"}'},
        "one that cannot be read": {f"good/{name}": text for name, text in GOOD.items()}
        | {f"bad/{name}": text for name, text in {**GOOD, "task.toml": "[["}.items()},
        "nothing": {"a.xyz": "x"},
    }
    for name, files in cases.items():
        write(tmp_path / name, files)
    read = {}
    for name, found in read_all(tmp_path).items():
        if isinstance(found, str):
            read[name] = found
        else:
            names = [(task["name"], task.get("format", "")) for task in found["tasks"]]
            not_read = found.get("not_read", ())
            reasons = [(each["file"], each.get("line"), each["reason"]) for each in not_read]
            read[name] = {"tasks": names, "not read": reasons, "models": found.get("models", [])}
    check(RECORDED / "folders.txt", read)


# White box: the real limit is ten thousand tasks.
def test_there_is_a_limit_to_the_number_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.jsonl": '{"prompt": "a"}\n' * 3})
    monkeypatch.setattr(formats, "MOST_TASKS", 3)
    assert [task.name for task in read_task_set(tmp_path / "a.jsonl").tasks] == ["a-1", "a-2", "a-3"]
    monkeypatch.setattr(formats, "MOST_TASKS", 2)
    with pytest.raises(UsageError, match="holds 3 tasks"):
        read_task_set(tmp_path / "a.jsonl")


def test_what_is_written_in_our_own_format_is_as_recorded(tmp_path: Path) -> None:
    source = tmp_path / "source"
    function = {"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "test": "t"}
    write(
        source,
        {
            "rows.jsonl": json.dumps({**function, "canonical_solution": " pass"}),
            "data.csv": "prompt,answer,id\nWhat?,Four,a/b c\n",
            "p.yaml": "prompts: [Hi]\nproviders: [echo]\ntests: [{assert: [{type: equals, value: x}]}]\n",
            "x/exercise/.meta/config.json": config(),
            **{f"x/exercise/{name}": text for name, text in EXERCISE.items()},
        },
    )
    write(source / "harbor", GOOD)
    write(source / "own", {"t.md": "---\nstart: s\nsetup: make\ntimeout: 5\n---\n# Task: own\n\nDo.\n"})
    write(source / "own", {"s/a.txt": "a"})
    clone = tmp_path / "clone"
    swe = {
        "instance_id": "...",
        "repo": "org/lib",
        "base_commit": "abc",
        "problem_statement": "Fix",
        "patch": "+++ b/x.py\n",
        "test_patch": "+++ b/t.py\n",
        "FAIL_TO_PASS": [],
    }
    write(source, {"swe.jsonl": json.dumps(swe)})
    clone.mkdir()
    read = [
        task
        for name in ("rows.jsonl", "data.csv", "p.yaml", "x/exercise", "harbor", "own/t.md", "swe.jsonl")
        for task in read_task_set(source / name, ReadOptions(repos={"org/lib": clone})).tasks
    ]
    steps = dataclasses.replace(read[0], name="steps", steps=(harbor.TaskStep(prompt="x"),))
    written, left_out = write_task_set(TaskSet(tasks=(*read, steps)), tmp_path / "new" / "folder")

    texts = {
        path.relative_to(tmp_path / "new").as_posix(): path.read_text().splitlines()
        for path in sorted((tmp_path / "new").rglob("*"))
        if path.is_file()
    }
    check(
        RECORDED / "written.txt", plain({"texts": texts, "written": written, "left out": left_out}, tmp_path)
    )
    with pytest.raises(UsageError, match="is not empty"):
        write_task_set(TaskSet(tasks=()), tmp_path / "new" / "folder")


def _row(folder: Path) -> Path:
    write(folder, {"a.jsonl": '{"prompt": "# Task: a"}\n'})
    return folder / "a.jsonl"


@pytest.mark.parametrize(
    ("changes", "is_prompt"),
    [
        ({}, True),
        ({"format": MARKDOWN_FORMAT}, False),
        ({"setup": "make"}, False),
        ({"agent": "echo"}, False),
        ({"repo": Path("/x")}, False),
        ({"check_files": texts_of({"a": "b"})}, False),
        ({"start": texts_of({"a": "b"})}, False),
        ({"checks": (TaskCheck(criterion="", command="make"),)}, False),
        ({"checks": (TaskCheck(criterion="x", command=""),)}, True),
    ],
)
def test_a_task_is_a_prompt_where_it_has_no_files_and_no_commands(changes, is_prompt, tmp_path):
    (task,) = read_task_set(_row(tmp_path)).tasks
    assert dataclasses.replace(task, **changes).is_prompt is is_prompt


def test_cases_of_amp_are_as_recorded(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    case = {"repo": "org/lib", "prompt": "Fix it\nnow", "commit": "abc"}
    bug = {"id": "bug", "repo": "org/lib", "bugCommit": "a", "fixCommit": "b", "testPath": "t/x.py"}
    suite_case = {**case, "timeoutSec": 3, "description": "D", "successCommand": "make test"}
    suites = [
        {"swebench_cases_dir": "none"},
        {"swebench_cases_dir": "bugs"},
        {
            "name": "s",
            "timeout_sec": 7,
            "cases": [{**case, "id": "c1"}, {"prompt": "x"}, {**case, "prompt": ""}],
        },
    ]
    matrix = {**case, "follow_ups": ["again"], "scriptCommand": "make"}
    snake: dict[str, Any] = {
        "id": "one",
        "repo": "../clone",
        "prompt": "Do",
        "follow_up_prompts": ["More", "Most"],
    }
    snake["script_command"] = "make"
    plans = {
        "plan.yaml": {"suites": suites, "models": {"m": {}}, "defaults": {"timeoutSec": 9}},
        "matrix.yaml": {"matrix": [matrix], "defaults": {"repo": "no"}},
        "suite.yaml": {"name": "s", "cases": [suite_case]},
        "snake.yaml": {
            "defaults": {"base_branch": "dev", "timeout_sec": 60},
            "suites": [{"cases": [snake, {**snake, "id": "two", "repo": "/nowhere/else"}]}],
        },
    }
    files = {
        **{name: yaml.safe_dump(plan) for name, plan in plans.items()},
        "list.json": json.dumps([bug, {**bug, "id": "", "repo": "none"}]),
        "bugs/one.json": json.dumps(bug),
        "bugs/two.json": json.dumps({**bug, "prompt": "Own words"}),
    }
    write(tmp_path / "amp", files)
    options = ReadOptions(repos={"org/lib": clone})
    read = {name: plain(read_task_set(tmp_path / "amp" / name, options), tmp_path) for name in plans}
    read["list.json"] = plain(amp.read_amp(tmp_path / "amp" / "list.json", options), tmp_path)
    check(RECORDED / "amp.txt", read)


def test_a_task_file_stands_for_its_folder_and_mistakes_in_a_folder_are_reported(tmp_path: Path) -> None:
    write(tmp_path / "good", GOOD)
    (task,) = read_task_set(tmp_path / "good" / "task.toml").tasks
    assert task.name == "good"
    wrong = "---\nchek: x\n---\n# Task: b\n"
    write(tmp_path / "own", {"a.md": "# Task: a\n\nDo\n", "b.md": wrong, "c.md": wrong})
    with pytest.raises(PlanError, match="Did you mean `check`") as error:
        read_task_set(tmp_path / "own")
    assert len(error.value.problems) == 2


@pytest.mark.parametrize(
    ("options", "prompt", "expect"),
    [
        ({"template": "{a} and {b}"}, "x and 3", {}),
        ({"template": "{{ a }} and {b}"}, "x and {b}", {}),
        ({"template": "{{a}}{{ b }}"}, "x3", {}),
        ({"template": "none"}, "none", {}),
        ({"prompt_column": "a", "expect_column": "b"}, "x", {"equals": "3"}),
    ],
)
def test_prompts_are_columns_or_templates_of_them(options, prompt, expect, tmp_path):
    write(tmp_path, {"x.csv": "a,b\nx,3\n"})
    (task,) = read_task_set(tmp_path / "x.csv", ReadOptions(**options)).tasks
    assert (task.prompt, task.expect, task.is_prompt) == (prompt, expect, True)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"template": "{c}"}, "the template names `c`; the columns are: a, b"),
        ({"template": "{{c}}"}, "the template names `c`; the columns are: a, b"),
        ({"template": "{a"}, "the template cannot be read: expected '}' before end of string"),
        ({"template": " "}, "the prompt is empty"),
        ({"prompt_column": "x"}, "there is no column x; the columns are: a, b"),
        ({"prompt_column": "a", "expect_column": "y"}, "there is no column y; the columns are: a, b"),
        ({}, "there is no column of prompts; the columns are: a, b"),
    ],
)
def test_a_row_that_makes_no_prompt_is_refused(options: Any, problem: str, tmp_path: Path) -> None:
    write(tmp_path, {"x.csv": "a,b\nx,3\n"})
    with pytest.raises(UsageError) as refused:
        read_task_set(tmp_path / "x.csv", ReadOptions(**options))
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("dockerfile", "toml", "image"),
    [
        ("FROM x\nRUN y\nWORKDIR /a\nworkdir b\n", "", ("proctor-task-", "/a/b")),
        ("FROM x\nRUN y\n", "", ("proctor-task-", "/app")),
        ("FROM x\nRUN y\nWORKDIR /a\n", 'workdir = "/w"', ("proctor-task-", "/w")),
        ("FROM x\nWORKDIR /a\n", 'docker_image = "org/image"', ("org/image", "/app")),
        ("FROM x\nRUN y\n", 'workdir = "/"', None),
        ("FROM x\nRUN y\n", 'workdir = "w"', None),
    ],
)
def test_a_task_that_needs_an_image_has_its_folder_in_it(dockerfile, toml, image, tmp_path, monkeypatch):
    # White-box: no container engine need be installed to read a task.
    monkeypatch.setattr(container, "engine", lambda *_: "podman")
    write(tmp_path, {**GOOD, "task.toml": f"[environment]\n{toml}\n", "environment/Dockerfile": dockerfile})
    if image is None:
        with pytest.raises(UsageError, match="it needs its image, which runs `y`"):
            read_task_set(tmp_path)
        return
    (task,) = read_task_set(tmp_path).tasks
    assert task.image is not None and task.image.name.startswith(image[0]) and task.image.work == image[1]
    assert task.image.context == (None if "docker_image" in toml else tmp_path / "environment")
    assert task.places[image[1]] == "work" and task.start is None


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("x/python/exercises/practice/two-fer", "python/two-fer"),
        ("python/exercises/concept/two-fer", "two-fer"),
    ],
)
def test_the_name_of_an_exercise_has_its_language(folder: str, name: str, tmp_path: Path) -> None:
    write(tmp_path / folder, {**EXERCISE, ".meta/config.json": config()})
    assert [task.name for task in read_task_set(tmp_path / folder).tasks] == [name]


def test_a_folder_that_cannot_be_read_is_named_with_the_reason(tmp_path, monkeypatch):
    """Root can read every folder, so the refusal is that of a method."""
    (tmp_path / "tasks" / "locked").mkdir(parents=True)
    listed = Path.iterdir

    def refused(folder: Path) -> Iterator[Path]:
        if folder.name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", refused)

    with pytest.raises(UsageError) as error:
        read_task_set(tmp_path / "tasks")

    assert str(error.value) == (
        f"{tmp_path}/tasks/locked cannot be read: Permission denied\n"
        "Make it readable, or give a path without it."
    )
