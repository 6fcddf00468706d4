"""The line of an output that says why a program failed. The outputs are those of the programs, shortened."""

import pytest

from proctor.processes.error_lines import error_line

PYTHON = """\
Traceback (most recent call last):
  File "d.py", line 3, in f
    int("x")
ValueError: invalid literal for int() with base 10: 'x'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "d.py", line 6, in <module>
    f()
RuntimeError: could not read the configuration:
second line
"""
CUSTOM = """\
Traceback (most recent call last):
  File "subprocess.py", line 2021, in wait
    self._check_timeout(endtime, orig_timeout, stdout, stderr, skip_check_and_raise=True)
subprocess.TimeoutExpired: Command '['sleep', '1']' timed out after 0.1 seconds
"""
NODE = """\
/app/agent.js:1
async function f(){ throw new Error("connect ECONNREFUSED 127.0.0.1:9", {cause: new TypeError("inner")}) }
                    ^

Error: connect ECONNREFUSED 127.0.0.1:9
    at f (/app/agent.js:1:31)
    ... 5 lines matching cause stack trace ...
    at node:internal/main/run_main_module:28:49 {
  code: 'ECONNREFUSED',
  [cause]: TypeError: inner
      at f (/app/agent.js:1:85)
}

Node.js v20.20.2
"""
NODE_REQUIRE = """\
node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module './missing-module'
Require stack:
- /tmp/a.js
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at Module._load (node:internal/modules/cjs/loader:1038:27) {
  code: 'MODULE_NOT_FOUND',
  requireStack: [ '/tmp/a.js' ]
}

Node.js v20.20.2
"""
NPM = """\
npm error code ENOENT
npm error errno -2
npm error enoent Could not read package.json: Error: ENOENT: no such file or directory, open '/a/package.json'
npm error enoent This is related to npm not being able to find a file.
npm error A complete log of this run can be found in: /root/.npm/_logs/2026-11-19T15_41_27_287Z-debug-0.log
"""
RUSTC = """\
error[E0308]: mismatched types
 --> m.rs:1:25
  |
1 | fn main(){ let x: i32 = "a"; }
  |                   ---   ^^^ expected `i32`, found `&str`

error: aborting due to 1 previous error

For more information about this error, try `rustc --explain E0308`.
"""
CARGO = """\
running 1 test
tests::it --- FAILED

---- tests::it stdout ----

thread 'tests::it' (17458) panicked at src/lib.rs:2:43:
assertion `left == right` failed
  left: 0
 right: 4
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/59807616/library/std/src/panicking.rs:689:5
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.42s

error: test failed, to rerun pass `--lib`
"""
GO_PANIC = """\
panic: assignment to entry in nil map

goroutine 1 [running]:
main.main()
\t/app/g.go:2 +0x2e
exit status 2
"""
GO_TEST = "--- FAIL: TestX (0.00s)\n    x_test.go:3: got 1, want 2\nFAIL\nFAIL\tgt\t0.002s\nFAIL\n"
JAVA = """\
Exception in thread "main" java.lang.IllegalStateException: cannot start
\tat J.main(J.java:1)
Caused by: java.lang.NumberFormatException: For input string: "x"
\tat java.base/java.lang.Integer.parseInt(Integer.java:668)
"""
GCC = """\
m.c: In function 'main':
m.c:1:19: error: 'x' undeclared (first use in this function)
    1 | int main(){return x;}
      |                   ^
m.c:1:19: note: each undeclared identifier is reported only once for each function it appears in
"""
PIP = """\
WARNING: Retrying (Retry(total=0)) after connection broken
ERROR: Could not find a version that satisfies the requirement nosuch (from versions: none)
ERROR: No matching distribution found for nosuch
"""
PYTEST = """\
F.                                                                       [100%]
=================================== FAILURES ===================================
>   def test_a(self): self.assertEqual("a-b", "a--b")
E   AssertionError: 'a-b' != 'a--b'
test_x.py:3: AssertionError
=========================== short test summary info ============================
FAILED test_x.py::T::test_a - AssertionError: 'a-b' != 'a--b'
FAILED test_x.py::T::test_b - KeyError: 'b'
2 failed, 1 passed in 0.29s
"""
UNITTEST = """\
FAIL: test_a (test_x.T.test_a)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "test_x.py", line 3, in test_a
    def test_a(self): self.assertEqual("a-b", "a--b")
                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
AssertionError: 'a-b' != 'a--b'
- a-b
+ a--b

----------------------------------------------------------------------
Ran 2 tests in 0.006s

FAILED (failures=1)
"""
BARE = """\
Traceback (most recent call last):
  File "test_x.py", line 3, in test_a
    assert first(2) == 3
           ^^^^^^^^^^^^^
AssertionError

FAILED (failures=1)
"""
MAKE = "python3 -m pytest\nmake: python3: No such file or directory\nmake: *** [Makefile:2: test] Error 127\n"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (PYTHON, "RuntimeError: could not read the configuration:"),
        (CUSTOM, "subprocess.TimeoutExpired: Command '['sleep', '1']' timed out after 0.1 seconds"),
        ("  File \"<string>\", line 1\n    x = (\n        ^\nSyntaxError: '(' was never closed\n",)
        + ("SyntaxError: '(' was never closed",),
        ("/usr/bin/python3: No module named nosuch\n", "/usr/bin/python3: No module named nosuch"),
        (NODE, "Error: connect ECONNREFUSED 127.0.0.1:9"),
        (NODE_REQUIRE, "Error: Cannot find module './missing-module'"),
        (NPM, NPM.splitlines()[2]),
        (RUSTC, "error[E0308]: mismatched types"),
        (CARGO, "panicked at src/lib.rs:2:43: assertion `left == right` failed"),
        (GO_PANIC, "panic: assignment to entry in nil map"),
        (GO_TEST, "--- FAIL: TestX (0.00s): x_test.go:3: got 1, want 2"),
        (JAVA, 'Exception in thread "main" java.lang.IllegalStateException: cannot start'),
        (GCC, "m.c:1:19: error: 'x' undeclared (first use in this function)"),
        (
            "src/a.ts(3,5): error TS2322: Type 'x'.\nFound 1 error.\n",
            "src/a.ts(3,5): error TS2322: Type 'x'.",
        ),
        (PIP, "ERROR: No matching distribution found for nosuch"),
        (PYTEST, "FAILED test_x.py::T::test_a - AssertionError: 'a-b' != 'a--b'"),
        (UNITTEST, "AssertionError: 'a-b' != 'a--b'"),
        (BARE, "AssertionError: assert first(2) == 3"),
        (MAKE, "make: python3: No such file or directory"),
        (
            "Cloning into 'x'...\nfatal: repository '/x' does not exist\n",
            "fatal: repository '/x' does not exist",
        ),
        (
            "mise ERROR No version is set for shim: codex\nmise use -g node@22\nmise ERROR Version: 2026.9\n"
            "mise ERROR Run with --verbose or MISE_VERBOSE=1 for more information\n",
            "mise ERROR No version is set for shim: codex",
        ),
        ("loading\nsh: 1: no-such: not found\nbye\n", "sh: 1: no-such: not found"),
        ("\x1b[31mError: no key\x1b[0m\nSee the docs.\n", "Error: no key"),
        ('one\ntwo\n\n{"type": "done"}\n', "two"),
        ("----\n", "----"),
        ("\n \n", ""),
        ("Error: " + "x" * 1000, "Error: " + "x" * 292 + "…"),
    ],
)
def test_the_line_that_says_why_a_program_failed(output, line):
    assert error_line(output) == line


def test_of_several_outputs_the_one_that_tells_more_counts():
    assert error_line("npm warn deprecated x\n", "Error: no such model\ndone\n") == "Error: no such model"
    assert error_line("one\n", "two\n") == "one"
    assert error_line("", "two\n") == "two"
