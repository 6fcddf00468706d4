"""Any YAML file of the product: what it means, where each part stands, and what is refused."""

import math
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import PlanError, UsageError
from proctor.plan import yaml_loader
from proctor.plan.source import MOST_BYTES, bytes_of, open_regular, repository_names, resolved
from proctor.plan.yaml_loader import read_source


def data(text: str | bytes):
    source = read_source(text, file="plan.yaml")
    assert not source.problems
    return source.data


def problems(text: str | bytes) -> list[str]:
    try:
        return [str(problem) for problem in read_source(text, file="plan.yaml").problems]
    except PlanError as error:
        return [str(problem) for problem in error.problems]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("off", "off"),
        ("1:30", "1:30"),
        ("2024-01-31", "2024-01-31"),
        ("1_000", "1_000"),
        ("012", 12),
        ("0o14", 12),
        ("0xC", 12),
        ("0x1f", 31),
        ("-7", -7),
        ("+7", 7),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.inf", -math.inf),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("!!int '12'", 12),
        ("!!float 12", 12.0),
        ("! 12", "12"),
        ("!!bool true", True),
        ("!!null ~", None),
        ("NULL", None),
        ("+.INF", math.inf),
        (".5.5", ".5.5"),
        ("-x", "-x"),
        ("1.2.3", "1.2.3"),
        ("0b11", "0b11"),
        ("|\n  no\n", "no\n"),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(written, meant):
    found = data(f"a: {written}")["a"]
    assert found == meant and type(found) is type(meant)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1: a\ntrue: b\nnull: c\n012: d", {"1": "a", "true": "b", "null": "c", "012": "d"}),
        ('"<<": 1', {"<<": 1}),
        ("a: &k name\nb: {*k : 2}", {"a": "name", "b": {"name": 2}}),
        ("\ufeffa: 1", {"a": 1}),
        (b"\xef\xbb\xbfa: 1", {"a": 1}),
        ("", None),
        ("# nothing\n", None),
        ("---\n", None),
        ("a: 0x" + "f" * 398, {"a": int("f" * 398, 16)}),
    ],
)
def test_documents_mean_what_is_written(text, value):
    assert data(text) == value


def test_a_merge_key_gives_what_the_mapping_has_not_itself():
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {y: 3, <<: [*a, *b]}\nd: {<<: *b}"
    read = data(text)
    assert read["c"] == {"x": 1, "y": 3, "z": 2}
    assert read["d"] == {"y": 2, "z": 2}


def test_each_key_and_value_knows_its_place():
    source = read_source("a: 1\nb:\n  - {c: 2}\n  - d:   3\n", file="plan.yaml")
    assert str(source.place(("b", 0, "c"))) == "plan.yaml:3:9"
    assert str(source.place(("b", 1, "d"))) == "plan.yaml:4:10"
    assert str(source.place(("b", 1, "d"), of_key=True)) == "plan.yaml:4:5"
    assert str(source.place(("b", 1, "missing"))) == "plan.yaml:4:5"
    source = read_source("{ä: 1, 🙂: 2}", file="plan.yaml")
    assert str(source.place(("🙂",), of_key=True)) == "plan.yaml:1:8", "columns count characters, not bytes"
    source = read_source("a: 1\nb: [x, y]", file="plan.yaml")
    assert str(source.place(("b", 1))) == "plan.yaml:2:8"
    assert str(source.place(("b", 2))) == str(source.place(("b", -1))) == "plan.yaml:2:4", "of the list"
    assert source.deepest(("b", 2)) == ("b",)


def test_a_key_given_twice_is_refused_where_it_is_given_again():
    assert problems("a: 1\nb: 2\na: 3\n") == [
        "plan.yaml:3:1: `a` is given twice\n   3 | a: 3\nKeep one of them. The first is on line 1."
    ]


@pytest.mark.parametrize("same", ["1: a\n'1': b", "<<: {x: 1}\n<<: {y: 1}", "a: 1\n? a\n: 2"])
def test_the_same_key_in_another_guise_is_given_twice(same):
    assert any("given twice" in problem for problem in problems(same))


def test_everything_wrong_is_reported_together_in_the_order_of_the_lines():
    found = problems("a: !!binary aGk=\nb: 1\nb: 2\nc: *nowhere\n")
    places = [problem.split(": ")[0] for problem in found]
    assert places == ["plan.yaml:1:4", "plan.yaml:3:1", "plan.yaml:4:4"]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: b: c", "1:5", "not YAML"),
        ("a: [1, 2", "2:1", "not YAML"),
        ('x: 1\na: "open\nb: c\n', "2:4", "not YAML"),
        ("a: 1\n\tb: 2", "2:1", "not YAML"),
        ("a: 1\n---\nb: 2", "2:1", "second document"),
        ("a: !!python/object:os.system ls", "1:4", "tag"),
        ("a: !!map 3", "1:4", "tag"),
        ("a: !!int x", "1:4", "the text is no `!!int`"),
        ("a: !!int true", "1:4", "the text is no `!!int`"),
        ("a: !!float true", "1:4", "the text is no `!!float`"),
        ("a: !!bool 1", "1:4", "the text is no `!!bool`"),
        ("a: !mine x", "1:4", "the tag `!mine` is not known here"),
        ("? [a]\n: b", "1:3", "name"),
        ("? {a: b}\n: b", "1:3", "name"),
        ("&a [*a]", "1:5", "inside"),
        ("a: &a {b: *a}", "1:11", "inside"),
        ("a: *b", "1:4", "stands for nothing"),
        ("a: b\x00c", "1:5", "U+0000"),
        ("a: \x1b[31m", "1:4", "U+001B"),
        ("a: \ud800", "1:4", "U+D800"),
        (b"a: 1\nb: \xff", "2:4", "0xff"),
        ('a: "x\\0"', "1:4", "cannot be passed on"),
        ('"x\\0": 1', "1:1", "cannot be passed on"),
        ("a: " + "9" * 5000, "1:4", "5,000 digits"),
        ("a: 0x" + "f" * 5000, "1:4", "digits"),
        ("a: {<<: 3}", "1:9", "`<<`"),
        ("a: {<<: [{}, 3]}", "1:14", "`<<`"),
        ("a: &a [1]\nb: {<<: *a}", "1:8", "`<<` takes a mapping, or a list of mappings"),
        ("a: &x 3\nb: {*x : 1}", "2:5", "only text can be a name"),
        ("a: 0x" + "f" * 399, "1:4", "401 digits"),
        ("max_tokens: !what 12", "1:13", "12"),
        ("a: \x1b", "1:4", 'as an escape in double quotes, such as "\\x1b"'),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_place(text, place, words):
    found = problems(text)
    assert len(found) == 1 and found[0].startswith(f"plan.yaml:{place}: ") and words in found[0]


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


def merge_bomb(levels: int) -> str:
    lines = ["a0: &a0 {x: x, y: y}"]
    lines += [
        f"a{n}: &a{n} {{l: *a{n - 1}, r: *a{n - 1}, <<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, levels)
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("text", [bomb(9), bomb(60), merge_bomb(60)])
def test_an_alias_bomb_is_refused_before_it_goes_off(text):
    [found] = problems(text)
    assert "more than 1,000,000 values" in found


def test_a_giant_file_is_refused_unread():
    [found] = problems("a: " + "x" * MOST_BYTES)
    assert "16 MiB" in found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 200_000, "1:65: this is nested more than 64 levels deep"),
        ("{a: " * 100_000, "1:257: this is nested more than 64 levels deep"),
        ("- " * 100_000, "1:129: this is nested more than 64 levels deep"),
        ("? " * 100_000, "1:3: a list or a mapping cannot be a name"),
    ],
    ids=["list", "map", "sequence", "key"],
)
def test_deep_nesting_is_refused_and_ends_no_process(text, problem):
    (found,) = problems(text)
    assert found.startswith(f"plan.yaml:{problem}\n")


@pytest.mark.parametrize(
    "text",
    [
        "env: {A: hunter2, A: hunter2}",
        "env:\n  A: hunter2\n  A: hunter2",
        "api_key: !what hunter2",
        "x: {password: hunter2, y: 1, y: 2}",
        "x: {y: 1, y: 2, authToken: 'hunter2\n\n  hunter2', z: 1, z: 2}",
        "env:\n  A: 'hunter2",
        "env:\n  A: hunter2: x",
        "GITHUB_TOKEN: hunter2: x",
        "x: &x !what hunter2\nenv: {A: *x}",
        "x: &x {A: !what hunter2}\nenv: *x",
        "x: &x {A: !what hunter2}\nenv: {<<: *x}",
        "env: [[!what hunter2]]",
        "secret: |\n  hunter2\nsecret: hunter2",
        *(
            f"{name}: !what hunter2"
            for name in ("API_KEY", "passwd", "passphrase", "credentials", "secretly")
        ),
    ],
)
def test_a_secret_is_never_shown(text):
    found = problems(text)
    assert found and "hunter2" not in "".join(found)


# Where YAML 1.1, which writes these, and YAML 1.2, which reads them, agree: the former leaves texts such
# as 1e3 and 0o7 without quotes, and the latter reads them as numbers.
words = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(
    lambda text: text[:1] not in set("0123456789+-.<")
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=20,
)


@given(plain, st.sampled_from([True, False, None]))
def test_plain_data_survives_being_written_and_read(value, flow):
    text = yaml.safe_dump(value, default_flow_style=flow)
    assert read_source(text, file="plan.yaml").data == value


tricky = st.text(
    alphabet=st.sampled_from(list("ab1:-,[]{}&*!|>'\"%@`#?<~ \n\t\\.x\0\x85\u2028é🙂")), max_size=60
)


@settings(max_examples=150)
@given(st.one_of(st.text(), tricky, st.binary()))
def test_no_text_makes_anything_worse_than_a_plan_error(text):
    try:
        source = read_source(text, file="plan.yaml")
    except PlanError as error:
        source = error
    assert source.problems or source.place(("a", 0), of_key=True).line >= 1


@settings(max_examples=120)
@given(tricky)
def test_a_machine_without_libyaml_reads_the_same(text):
    def outcome(loader):
        try:
            read = read_source(text, file="plan.yaml", loader=loader)
        except PlanError:
            return "refused"
        return repr(read.data), len(read.problems)

    pure, fast = outcome(yaml.SafeLoader), outcome(yaml.CSafeLoader)
    # The parser in Python is stricter about some tabs and comments; what it reads, it reads the same.
    assert pure in (fast, "refused")


def test_positions_are_found_when_they_are_needed():
    source = read_source("a:\n  - b: 1\n    token: secret\n", file="plan.yaml")
    assert source.locate
    assert source.place(("a", 0, "token")).line == 3
    assert source.deepest(("a", 0, "c")) == ("a", 0)
    assert "secret" not in source.problem(("a", 0, "token"), "is wrong").excerpt


def test_what_the_parser_gives_no_position_for_is_refused_at_the_beginning():
    with pytest.raises(PlanError) as refused:
        read_source('x: 1\na: "\\U7FFFFFFF"', file="plan.yaml", loader=yaml.SafeLoader)
    assert str(refused.value).startswith("plan.yaml:1:1: this cannot be read as YAML: ")


# Limits


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a: [x, y]\nb: z", 5),
        ("a: [x, y]\nb: &q z", 5),
        ("a: &q [x, y]\nb: *q", 7),
        ("a: &q z\nb: *q", 3),
        ("a: {&k b: x}\nc: *k", 4),
    ],
)
def test_the_number_of_values_is_counted_with_aliases_written_out(monkeypatch, text, values):
    monkeypatch.setattr(yaml_loader, "MOST_VALUES", values)
    source = read_source(text, file="plan.yaml")
    assert source.data
    assert (source.locate is None) == ("&" in text), "what is usual is read without positions"
    monkeypatch.setattr(yaml_loader, "MOST_VALUES", values - 1)
    (problem,) = problems(text)
    last = text.split("\n")[1]
    assert problem.startswith(f"plan.yaml:2:{len(last.partition(' ')[0]) + 2}: with its aliases written out")
    assert "more than" in problem and problem.endswith("Use fewer aliases, or lists in a few entries.")


def test_the_depth_of_an_alias_is_that_of_what_it_stands_for(monkeypatch):
    links = "\n".join(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 80))
    assert "64 levels" in problems(f"a0: &a0 x\n{links}")[-1]
    text = "a: &a [[x]]\nb: [*a]"
    # White-box: a plan of the real depth would be unreadable here.
    monkeypatch.setattr(yaml_loader, "MOST_LEVELS", 4)
    assert data(text) == {"a": [["x"]], "b": [[["x"]]]}
    monkeypatch.setattr(yaml_loader, "MOST_LEVELS", 3)
    assert problems(text)[0].startswith("plan.yaml:2:5: this is nested more than 3 levels deep")


# Places and excerpts


@pytest.mark.parametrize(
    ("text", "excerpt"),
    [
        ("x: {password: hunter2, y: 1, y: 2}", "x: {password: …, y: 1, y: 2}"),
        ("x: {token: ab, y: 1, y: 2, api_key: cd}", "x: {token: …, y: 1, y: 2, api_key: …}"),
        ("x: {token: 'ab\n  cd', y: 1, y: 2}", "…, y: 1, y: 2}"),
        ("x: {y: 1, y: 2, token: 'ab\n  cd'}", "x: {y: 1, y: 2, token: …"),
        ("x: {env: [ab, {q: cd}], y: 1, y: 2}", "x: {env: […, {q: …}], y: 1, y: 2}"),
        ("t: &t ab\nx: {y: 1, y: 2, token: *t}", "x: {y: 1, y: 2, token: *t}"),
        ("x: {t: &t {q: ab}, y: 1, y: 2, env: *t}", "x: {t: …, y: 1, y: 2, env: *t}"),
    ],
)
def test_an_excerpt_shows_all_but_the_secret(text, excerpt):
    source = read_source(text, file="plan.yaml")
    assert [problem.excerpt for problem in source.problems] == [excerpt]


def test_an_excerpt_has_at_most_160_characters():
    def excerpt(length):
        text = "a: " + "x" * (length - 3)
        return read_source(text, file="plan.yaml").problem(("a",), "is wrong").excerpt

    assert excerpt(160).endswith("x") and len(excerpt(160)) == 160
    assert excerpt(161).endswith("x…") and len(excerpt(161)) == 160
    assert read_source("a: 1", file="plan.yaml").problem_at(2, 1, "is wrong").excerpt == ""


@pytest.mark.parametrize(
    ("text", "excerpt"),
    [
        ("env:\n  A: 'hunter2", "…"),
        ("GITHUB_TOKEN: hunter2: x", "…"),
        ("x: 1\n\tpassword: hunter2", "…"),
        ("api_key: x\nb: c: d", "b: c: d"),
        ("b: c: d\napi_key: x", "b: c: d"),
    ],
)
def test_a_line_that_is_not_yaml_is_shown_unless_it_speaks_of_secrets(text, excerpt):
    with pytest.raises(PlanError) as refused:
        read_source(text, file="plan.yaml")
    (problem,) = refused.value.problems
    assert problem.excerpt == excerpt


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("a: b: c", "Put text that holds a colon and a space in quotes."),
        ("a: @x", "Indent with spaces, not tabs; put text that starts with @, ` or % in quotes."),
        ("a: 'x", "A quote that was opened is not closed."),
        ("a:\n  b: 1\n c: 2", "Check that the lines of one mapping start in the same column."),
        ("a: 1\nb\nc: 2", "Write `name: value`, with a space after the colon."),
        ("- 1\nx: 2", "Check that the entries of one list start in the same column."),
        ("a: [1, 2", "A bracket or brace that was opened is not closed."),
        ("a: !<x", ""),
    ],
)
def test_a_mistake_in_the_syntax_has_its_remedy(text, remedy):
    with pytest.raises(PlanError) as refused:
        read_source(text, file="plan.yaml", loader=yaml.CSafeLoader)
    (problem,) = refused.value.problems
    assert problem.remedy == remedy


# Files


def test_a_file_that_cannot_be_read_is_named_with_its_remedy(tmp_path):
    path = tmp_path / "missing.yaml"
    with pytest.raises(UsageError) as refused:
        bytes_of(path, "the plan", remedy="Name another.")
    assert str(refused.value) == f"cannot read the plan {path}: No such file or directory\nName another."
    with pytest.raises(UsageError) as refused:
        bytes_of(path)
    assert str(refused.value) == f"cannot read {path}: No such file or directory"


def test_a_pipe_is_read_only_where_a_shell_passes_one(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is not a regular file"):
        open_regular(tmp_path / "pipe")
    reading, writing = os.pipe()
    os.write(writing, b"a: 1")
    os.close(writing)
    with open_regular(Path(f"/dev/fd/{reading}")) as file:
        assert file.read() == b"a: 1"
    os.close(reading)
    (tmp_path / "file").write_text("x")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"x"


def test_an_alias_stands_for_its_value_at_the_place_of_its_anchor():
    source = read_source("a: &x 1\nb: [*x]\nc: {d: &y [2]}\ne: *y", file="plan.yaml")
    assert source.data == {"a": 1, "b": [1], "c": {"d": [2]}, "e": [2]}
    assert str(source.place(("b", 0))) == "plan.yaml:1:4"
    assert str(source.place(("e", 0))) == "plan.yaml:3:12"


def test_a_hundred_problems_are_all_shown_and_of_the_others_the_number():
    def shown(number):
        with pytest.raises(PlanError) as refused:
            read_source("a: 1\n" * number + "b: *nowhere", file="plan.yaml")
        return [problem.problem for problem in refused.value.problems]

    assert len(shown(100)) == 100 and "more problem" not in shown(100)[-1]
    assert shown(101)[100:] == ["and 1 more problem after this one"]


@pytest.mark.parametrize(
    ("written", "path"),
    [("~", "/home/me"), ("~/a", "/home/me/a"), ("~a", "/work/~a"), ("../b/./c", "/b/c"), ("/d/", "/d")],
)
def test_paths_are_relative_to_a_folder_or_to_the_home(written, path):
    assert resolved(written, folder=Path("/work"), home=Path("/home/me")) == path


def test_repositories_have_the_shortest_names_that_differ():
    paths = ["/x/a/api", "/x/b/api", "/x/web", "/y/a/api", "/"]
    names = ["x/a/api", "b/api", "web", "y/a/api", "/"]
    assert repository_names(paths) == dict(zip(paths, names, strict=True))
