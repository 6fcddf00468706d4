"""Assertions written in JavaScript, run by Node in the sandbox: they are code of others."""

import json
import shutil
import uuid

from proctor.errors import AttemptError, UsageError
from proctor.evaluators.expect import JAVASCRIPT, CheckResult
from proctor.formatting import clipped
from proctor.json_values import JsonMap, as_map, as_number, as_text, parse_json
from proctor.processes import run
from proctor.runner import Services
from proctor.workspace import beneath
from proctor.workspace.folders import temporary_folder

TIME_LIMIT_SECONDS = 30.0
_PROGRAM = """\
const fs = require("fs");
const { output, context, code } = JSON.parse(fs.readFileSync("input.json", "utf8"));
const isBody = code.trim().includes("\\n") || /^\\s*(return|const|let|var|if|for|throw)\\b/.test(code);
const AsyncFunction = Object.getPrototypeOf(async function () {}).constructor;
const end = (result) => fs.writeFileSync("result.json", JSON.stringify(result));
(async () => {
  const check = new AsyncFunction("output", "context", "require", isBody ? code : `return (${code});`);
  end({ value: await check(output, context, require) });
})().catch((error) => end({ error: String(error) }));
"""
"""One line is an expression, several lines are the body of a function, as in promptfoo."""


async def check_javascript(
    assertion: JsonMap, output: str, services: Services, sandbox: object = None
) -> CheckResult:
    """The result of one assertion; not checked where Node or a sandbox is missing."""
    if shutil.which("node", path=services.environment.get("PATH")) is None:
        return _result(None, 0.0, "javascript: Node is not installed")
    try:
        if services.sandbox.kind_of(sandbox) == "none":
            return _result(None, 0.0, "javascript: scripts run only in a sandbox")
    except UsageError as error:
        return _result(None, 0.0, f"javascript: {error.problem}")
    code, name = as_text(assertion, "value"), f"script-{uuid.uuid4().hex}"
    async with temporary_folder(services.home, name) as place:
        for folder in ("work", "home"):
            (place / folder).mkdir(parents=True)
        document = {"output": output, "context": as_map(assertion, "context"), "code": code}
        (place / "work" / "input.json").write_text(json.dumps(document), encoding="utf-8")
        (place / "work" / "assert.cjs").write_text(_PROGRAM, encoding="utf-8")
        try:
            finished = await run(
                "node assert.cjs",
                folder=place / "work",
                environment={**services.environment, "HOME": str(place / "home")},
                attempt=name,
                time_limit=TIME_LIMIT_SECONDS,
                confinement=services.sandbox.confine(
                    "check", sandbox, folders=[place], home=place / "home", named=["node"]
                ),
            )
        except AttemptError as error:
            return _result(None, 0.0, f"javascript: {error}")
        result = beneath.read_text(place, "work/result.json", 1 << 20)
    if not result:
        why = "took too long" if finished.timed_out else clipped(finished.output.strip(), 300) or "no result"
        return _result(False, 0.0, f"javascript: {why}")
    return _read(assertion, as_map(parse_json(result)), clipped(code, 80))


def _result(passed: bool | None, score: float, explanation: str) -> CheckResult:
    return CheckResult(JAVASCRIPT, passed, score, explanation)


def _read(assertion: JsonMap, result: JsonMap, about: str) -> CheckResult:
    """The result of a script: true or false, a number, or an object."""
    if error := as_text(result, "error"):
        return _result(False, 0.0, f"javascript {about}: {error}")
    value, threshold = result.get("value"), as_number(assertion, "threshold")
    if isinstance(value, bool):
        return _result(value, float(value), f"javascript {about}")
    if isinstance(value, int | float):
        passed = value > 0 if threshold is None else value >= threshold
        return _result(passed, float(value), f"javascript {about}")
    fields = as_map(value) if isinstance(value, dict) else {}
    if isinstance(fields.get("pass"), bool):
        passed, score = fields["pass"] is True, as_number(fields, "score")
        reason = clipped(as_text(fields, "reason"), 300) or about
        return _result(passed, float(passed) if score is None else score, f"javascript: {reason}")
    return _result(False, 0.0, f"javascript {about}: it returns neither true, false, nor a number")
