"""`proctor.toml`: what each section may contain, what is refused and why, and how files are merged."""

from pathlib import Path

import pytest

from proctor.config import Config, read_config, redirected_keys
from proctor.errors import UsageError

WATCH = '[[watch]]\nname = "a"\n'
TOKEN = '[serve.tokens.ci]\nrole = "view"\n'


def read(folder: Path, text: str, **environment: str) -> Config:
    folder.mkdir(exist_ok=True)
    (folder / "proctor.toml").write_text(text, encoding="utf-8")
    return read_config([folder], environment)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "Fix the file, or remove it."),
        ("[pricez.a]\ninput = 1\n", "there is not a section [pricez]\nDid you mean `prices`? There are: "),
        ("zzz = 1\n", "there is not a section [zzz]\nThere are: "),
        ("prices = 1\n", "`prices` is not a section\nWrite [prices.NAME]."),
        ("[prices]\na = 1\n", "[prices.a] is not a section of settings\nIt may have: "),
        ("[prices.a]\ninptu = 1\n", "[prices.a] has no setting `inptu`\nDid you mean `input`?"),
        ("[prices.a]\ninput = -1\noutput = 1\n", "`input` should be a number that is not negative"),
        ("[prices.a]\ninput = inf\noutput = 1\n", "`input` should be a number that is not negative"),
        ("[prices.a]\ninput = 1\n", "[prices.a] lacks `output`"),
        ("[limits.a]\nconcurrency = 0\n", "`concurrency` should be a number of calls: 1 or more"),
        ("[limits.a]\nconcurrency = 1.5\n", "`concurrency` should be a number of calls: 1 or more"),
        ("[limits.a]\n", "[limits.a] lacks `concurrency`"),
        ("[limits]\noutage_patience = -1\n", "`outage_patience` should be a number of seconds: 0 or more"),
        ("[providers.acme]\nkey = 'ACME'\n", "[providers.acme] lacks `base_url`"),
        ("[providers.acme]\nbase_url = 3\n", "`base_url` should be text"),
        (
            "[providers.my-acme]\nbase_url = 'http://x'\nkey = 'sk-123'\n",
            "`key` should name the variable that holds the key, and not be the key itself\n"
            'Write:  key = "MY_ACME_API_KEY"',
        ),
        ("[providers.a]\nbase_url = 'x'\nkey = 'abcdefghijklmn01'\n", "`key` should name the variable"),
        ("[budget]\n", "[budget] limits the spending"),
        ("[budget]\nusd = -1\n", "[budget] limits the spending"),
        ("budget = 3\n", "[budget] limits the spending"),
        ("evaluation = 1\n", "`evaluation` is not a section\nWrite [evaluation]."),
        ("[evaluation]\njugde = 'a/b'\n", "[evaluation] has no setting `jugde`\nDid you mean `judge`?"),
        ("[evaluation]\njudge = 1\n", "`judge` should be `provider/model`"),
        ("[evaluation]\nharmful_value = 2\n", "`harmful_value` should be 0 or 1"),
        ("[evaluation]\nlimits = 1\n", "`evaluation.limits` is not a section\nWrite [evaluation.limits]."),
        ("[evaluation]\nbuckets = 1\n", "`evaluation.buckets` is not a section"),
        ("[evaluation.models]\nx = 'model'\n", '"x" should be "provider/model"'),
        ("[evaluation.models]\nx = 3\n", '"x" should be "provider/model"'),
        ("[evaluation.buckets]\nx = ''\n", '"x" should be a folder'),
        ("[evaluation.lambdas]\nx = 3\n", '"x" should be "module:function", or a list'),
        ("[evaluation.lambdas]\nx = ['a', 3]\n", '"x" should be "module:function", or a list'),
        ("encryption = 1\n", "`encryption` is not a section\nWrite [encryption]."),
        ("[encryption]\nkey = 'a'\n", "[encryption] has no setting `key`"),
        ("[encryption]\nkey_file = 'a'\nkey_env = 'b'\n", "names several keys: key_file, key_env\nKeep one."),
        ("[encryption]\nkey_file = ''\n", "[encryption]: `key_file` should be text"),
        ("[encryption]\nkeys = 3\n", "`encryption.keys` is not a section"),
        ("[encryption.keys]\nx = 3\n", "x] is not a section of settings\nIt may have: key_file, key_env."),
        ("[encryption.keys]\nx = {key_file = ''}\n", "[encryption.keys.x]: `key_file` should be text"),
        ("[sandbox]\nodd = 1\n", "[sandbox]: "),
        ("watch = 1\n", "`watch` is not a list of sections\nWrite [[watch]]."),
        ("watch = [1]\n", "[[watch]] 1 is not a section of settings\nIt may have: "),
        (f"{WATCH}nam = 1\n", "[[watch]] 1 has no setting `nam`\nDid you mean `name`?"),
        ("[[watch]]\n", "[[watch]] 1 lacks `name`"),
        (f"[[watch]]\nname = 'a{'b' * 48}'\n", "`name` should be a letter"),
        ("[[watch]]\nname = ''\n", "`name` should be a letter"),
        (f"{WATCH}{WATCH}", "[[watch]] 2: `a` is the name of another one"),
        (f"{WATCH}log_groups = ['a', '']\n", "`log_groups` should be a list of texts"),
        (f"{WATCH}margin = '1'\n", "`margin` should be a number"),
        (f"{WATCH}alpha = 0\n", "`alpha` should be a number between 0 and 1"),
        (f"{WATCH}alpha = 1\n", "`alpha` should be a number between 0 and 1"),
        (f"{WATCH}sample_percent = 0\n", "`sample_percent` should be a number above 0, at most 100"),
        (f"{WATCH}sample_percent = 100.5\n", "`sample_percent` should be a number above 0, at most 100"),
        (f"{WATCH}session_timeout_minutes = 0\n", "should be a whole number from 1 to 1440"),
        (f"{WATCH}session_timeout_minutes = 1441\n", "should be a whole number from 1 to 1440"),
        (f"{WATCH}session_timeout_minutes = 1.5\n", "should be a whole number from 1 to 1440"),
        (f"{WATCH}direction = 'left'\n", "`direction` should be one of: both, up, down"),
        (f"{WATCH}scale = [2, 2]\n", "`scale` should be two numbers, the lower one first"),
        (f"{WATCH}scale = [1, 2, 3]\n", "`scale` should be two numbers, the lower one first"),
        (f"{WATCH}webhook = 'ftp://x'\n", "`webhook` should be an address"),
        (f"{WATCH}evaluators = ['e']\nservice = 's'\n", "needs `service` and `log_groups`"),
        (f"{WATCH}evaluators = ['e']\nlog_groups = ['g']\n", "needs `service` and `log_groups`"),
        (f"{WATCH}webhook = 'http://x'\ncommand = ['a']\n", "has both `webhook` and `command`\nKeep one"),
        ("serve = 1\n", "`serve` is not a section\nWrite [serve]."),
        ("[serve]\nregoin = 'a'\n", "[serve] has no setting `regoin`\nDid you mean `region`?"),
        ("[serve]\nregion = 3\n", "[serve]: `region` should be text"),
        ("[serve]\naccess_keys = 3\n", "`serve.access_keys` is not a section"),
        ("[serve.access_keys]\nA = ''\n", "`A` has no secret"),
        ("[serve.access_keys]\nA = '${NONE}'\n", "NONE is not set\nSet it: export NONE=…"),
        ("[serve]\ntokens = 3\n", "`serve.tokens` is not a section"),
        ("[serve.tokens]\nci = 3\n", "[serve.tokens.ci] is not a section of settings"),
        (f"{TOKEN}token_env = 3\n", "[serve.tokens.ci]: `token_env` should be text"),
        (f"{TOKEN}tokn = 'a'\n", "[serve.tokens.ci] has no setting `tokn`"),
        (TOKEN, "needs one of: "),
        (f"{TOKEN}token_env = 'A'\ntoken_file = 'b'\n", "needs one of: "),
        (f"{TOKEN.replace('ci', 'local')}token_env = 'A'\n", "choose another name"),
        (f"{TOKEN.replace('view', 'king')}token_env = 'A'\n", "`role` should be one of: "),
        (f"{TOKEN}sha256 = '{'a' * 63}'\n", "`sha256` should be 64 hexadecimal digits"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_with_a_remedy(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        read(tmp_path, text)

    assert problem in str(raised.value)
    assert str(raised.value).startswith(f"{tmp_path}/proctor.toml: ")


def test_what_is_right_in_a_file_is_taken(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        f"""
[prices.a]
input = 0
output = 2.5
[limits]
outage_patience = 0
[limits.openai]
concurrency = 1
[providers.acme]
base_url = "http://acme.test"
key = "${{ACME_TOKEN}}"
[providers.openai]
key = "MY_KEY"
[budget]
usd = 0
[evaluation]
judge = "a/b"
harmful_value = 0
models = {{x = "a/b"}}
buckets = {{x = "folder"}}
lambdas = {{x = "m:f", y = ["program", "-v"]}}
[encryption]
key_file = "key"
keys = {{arn = {{key_file = "other"}}, env = {{key_env = "K"}}}}
[serve]
region = "eu"
[serve.access_keys]
A = "secret"
B = "${{SECRET}}"
[serve.tokens.ci]
role = "view"
token_file = "token"
{WATCH}
alpha = 0.5
sample_percent = 100
session_timeout_minutes = 1440
direction = "up"
scale = [1, 2]
webhook = "${{HOOK}}"
evaluators = ["e"]
service = "s"
log_groups = ["g"]
[[watch]]
name = "a{"b" * 47}"
session_timeout_minutes = 1
""",
        SECRET="from there",
    )
    assert config.prices == {"a": {"input": 0, "output": 2.5}}
    assert (config.limits, config.outage_patience_seconds, config.budget_usd) == ({"openai": 1}, 0, 0)
    assert config.variables["ACME_BASE_URL"] == "http://acme.test"
    assert sorted(config.variables.values()) == ["ACME_TOKEN", "MY_KEY", "http://acme.test"]
    assert config.access_keys == {"A": "secret", "B": "from there"}
    assert config.tokens["ci"]["token_file"] == str(tmp_path / "token")
    assert config.encryption == {
        "key_file": str(tmp_path / "key"),
        "keys": {"arn": {"key_file": str(tmp_path / "other")}, "env": {"key_env": "K"}},
    }
    assert (config.watches[0].scale, config.watches[0].evaluators) == ((1, 2), ("e",))
    assert [len(watch.name) for watch in config.watches] == [1, 48]
    assert config.files == (str(tmp_path / "proctor.toml"),)


def test_nearer_files_take_precedence_and_the_lowest_budget_holds(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    read(
        near,
        "[limits.a]\nconcurrency = 1\n[budget]\nusd = 9\n"
        "[encryption]\nkey_env = 'K'\n[serve]\nregion = 'n'\n",
    )
    read(
        far,
        "[limits.a]\nconcurrency = 2\n[limits.b]\nconcurrency = 3\n[budget]\nusd = 5\n"
        "[encryption]\nkey_file = 'f'\n[encryption.keys]\nx = {key_env = 'E'}\n[serve]\nregion = 'f'\n",
    )
    config = read_config([near, far, near, tmp_path / "none"], {})

    assert config.limits == {"a": 1, "b": 3} and config.budget_usd == 5
    assert config.encryption == {"keys": {"x": {"key_env": "E"}}, "key_env": "K"}
    assert config.serve == {"region": "n"}
    assert config.files == (str(near / "proctor.toml"), str(far / "proctor.toml"))
    assert read_config([], {}) == Config()


def test_a_key_that_a_working_folder_sends_elsewhere_is_told(tmp_path: Path) -> None:
    far = "[providers.openai]\nbase_url = 'http://far.test'\n"
    config = read(tmp_path / "a", far)
    remark = "the key OPENAI_API_KEY goes to http://far.test, as a proctor.toml in a working folder says"
    assert list(redirected_keys(config, Config())) == [remark]
    assert list(redirected_keys(config, config)) == []
    assert list(redirected_keys(Config(), Config())) == []
    near = read(tmp_path / "b", far.replace("far.test", "127.0.0.1:1"))
    assert list(redirected_keys(near, Config())) == []
    own = read(tmp_path / "c", far + "key = 'OWN_KEY'\n")
    assert list(redirected_keys(own, Config())) == []
    acme = "[providers.acme]\nbase_url = 'http://far.test'\nkey = '${OPENAI_API_KEY}'\n"
    assert list(redirected_keys(read(tmp_path / "d", acme), Config())) == [remark]
    elsewhere = read(tmp_path / "e", far, OPENAI_BASE_URL="http://mine.test")
    assert list(redirected_keys(elsewhere, Config())) == []


@pytest.mark.parametrize(
    ("key", "is_name"),
    [
        ("ACME_KEY", True),
        ("${ACME_KEY}", True),
        ("", True),
        ("abcdefghijklmn1", True),
        ("abcdefghijklmno1", False),
        ("ABCDEFGHIJKLMNO1", True),
        ("abcdefghijklmnop", True),
        ("1ABC", False),
        ("A-B", False),
    ],
)
def test_a_key_is_the_name_of_a_variable(key: str, is_name: bool, tmp_path: Path) -> None:
    text = f"[providers.acme]\nbase_url = 'http://x'\nkey = '{key}'\n"
    if is_name:
        assert read(tmp_path, text).providers["acme"]["key"] == key
    else:
        with pytest.raises(UsageError, match="should name the variable"):
            read(tmp_path, text)
