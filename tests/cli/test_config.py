"""`proctor.toml`: providers, prices and limits that hold for every plan."""

import pytest

from proctor.bootstrap import locate
from proctor.config import read_config
from proctor.errors import UsageError
from proctor.models.providers import find_endpoint


def write(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "proctor.toml").write_text(text)
    return folder


def test_without_a_file_nothing_is_configured(tmp_path):
    assert read_config([tmp_path], {}).files == ()


def test_a_provider_of_ones_own_is_named_with_its_address_and_the_variable_of_its_key(tmp_path):
    write(tmp_path, '[providers.my-vllm]\nbase_url = "http://127.0.0.1:9/v1"\nkey = "${TEAM_KEY}"\n')
    environment = {"TEAM_KEY": "k-123"}
    found = read_config([tmp_path], environment).variables
    assert "k-123" not in repr(found)

    endpoint = find_endpoint("my-vllm/large", {**found, **environment})
    assert (endpoint.base_url, endpoint.key) == ("http://127.0.0.1:9/v1", "k-123")


def test_a_key_that_the_file_names_is_used_and_no_other_is_sent_in_its_place(tmp_path):
    write(tmp_path, '[providers.openai]\nbase_url = "https://proxy.example/v1"\nkey = "PROXY_KEY"\n')
    usual = {"OPENAI_API_KEY": "the-real-one"}
    found = read_config([tmp_path], usual).variables

    endpoint = find_endpoint("gpt-4o", {**found, **usual})
    assert (endpoint.key, endpoint.missing_key) == ("", "PROXY_KEY")
    assert find_endpoint("gpt-4o", {**found, **usual, "PROXY_KEY": "p"}).key == "p"


def test_a_known_provider_needs_no_address_in_the_file_and_the_environment_wins(tmp_path):
    write(
        tmp_path,
        '[providers.anthropic]\nkey = "TEAM_KEY"\n'
        '[providers.azure]\nbase_url = "https://ours.example"\nkey = "AZ"\n'
        '[providers.ollama]\nbase_url = "http://box:1"\n',
    )
    environment = {"TEAM_KEY": "k-1", "AZ": "k-2", "OLLAMA_HOST": "elsewhere"}
    whole = {**read_config([tmp_path], environment).variables, **environment}

    assert find_endpoint("claude-x", whole).key == "k-1"
    azure = find_endpoint("azure/mine", whole)
    assert (azure.base_url, azure.key) == ("https://ours.example/openai", "k-2")
    assert find_endpoint("ollama/x", whole).base_url == "http://elsewhere:11434/v1"


def test_the_nearest_file_wins_and_the_others_add(tmp_path):
    near = write(tmp_path / "near", '[prices."a/b"]\ninput = 1\noutput = 2\n')
    far = write(
        tmp_path / "far",
        '[prices."a/b"]\ninput = 9\noutput = 9\n'
        "[prices.c]\ninput = 3\noutput = 4\n[limits.openai]\nconcurrency = 5\n",
    )
    found = read_config([near, far], {})
    assert found.prices == {"a/b": {"input": 1, "output": 2}, "c": {"input": 3, "output": 4}}
    assert found.limits == {"openai": 5}


def test_of_several_budgets_for_the_store_the_lowest_holds(tmp_path):
    near = write(tmp_path / "near", "[budget]\nusd = 500\n")
    far = write(tmp_path / "far", "[budget]\nusd = 50\n")
    assert read_config([near, far], {}).budget_usd == 50
    assert read_config([near], {}).budget_usd == 500
    assert read_config([tmp_path], {}).budget_usd is None


def test_the_server_is_told_its_names_and_who_may_sign(tmp_path):
    near = write(
        tmp_path / "near", '[serve]\nregion = "eu-west-1"\n[serve.access_keys]\nMINE = "${SECRET}"\n'
    )
    far = write(
        tmp_path / "far",
        '[serve]\nregion = "us-east-1"\nlog_group = "/team"\n[serve.access_keys]\nMINE = "m"\nOTHER = "o"\n',
    )
    found = read_config([near, far], {"SECRET": "s-123"})
    assert found.serve == {"region": "eu-west-1", "log_group": "/team"}
    assert found.access_keys == {"MINE": "s-123", "OTHER": "o"}
    assert "s-123" not in repr(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[price.x]\ninput = 1", "Did you mean `prices`"),
        ('[providers.x]\nbase_ulr = "y"', "Did you mean `base_url`"),
        ("[providers.x]\nbase_url = 3", "should be text"),
        ("[prices.x]\ninput = 1", "lacks `output`"),
        ("[prices.x]\ninput = -1\noutput = 1", "not negative"),
        ("[limits.x]\nconcurrency = true", "a number"),
        ("[limits.x]\nconcurrency = 0", "a number of calls: 1 or more"),
        ("[limits.x]\nconcurrency = 2.5", "a number of calls: 1 or more"),
        ("[prices.x]\ninput = inf\noutput = 1", "not negative"),
        ("prices = 3", "is not a section"),
        ("[prices]\nx = 3", "is not a section of settings"),
        ("[budget]\nusd = -1", "usd = 50"),
        ('[budget]\nusd = "much"', "usd = 50"),
        ("[budget]\nusd = 5\neur = 5", "usd = 50"),
        ("[budgets]\nusd = 5", "Did you mean `budget`"),
        ("[serve]\nregoin = 'x'", "Did you mean `region`"),
        ("[serve]\naccount = 7", "should be text"),
        ("serve = 3", "is not a section"),
        ("evaluation = 3", "is not a section"),
        ("[evaluation]\njugde = 'x'", "Did you mean `judge`"),
        ("[evaluation]\njudge = 1", "`provider/model`"),
        ("[evaluation]\nharmful_value = 2", "0 or 1"),
        ("[evaluation]\nlimits = 3", "[evaluation.limits]"),
        ("[evaluation.lambdas]\narn = 3", "module:function"),
        ("[serve]\ntokens = 3", "Write [serve.tokens.NAME]"),
        ("[serve.tokens.a]\nrole = 'boss'\ntoken_env = 'A'", "one of: view, label, run, admin"),
        ("[serve.tokens.a]\nrole = 'run'", "needs one of: token_env, token_file, sha256"),
        ("[serve.tokens.a]\nrole = 'run'\ntoken = 'secret'", "has no setting `token`"),
        ("[serve.tokens.a]\nrole = 'run'\nsha256 = 'abc'", "64 hexadecimal digits"),
        ("[serve.tokens.proctor]\nrole = 'run'\ntoken_env = 'A'", "choose another name"),
        ("[serve.access_keys]\nAKID = 7", 'AKID = "secret"'),
        ('[serve.access_keys]\nAKID = "${NOT_SET}"', "NOT_SET is not set"),
        ('[serve.access_keys]\nAKID = ""', "has no secret"),
        ("[[[", "proctor.toml"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_the_nearest_name(tmp_path, text, said):
    write(tmp_path, text)
    with pytest.raises(UsageError, match=r"proctor\.toml") as told:
        read_config([tmp_path], {})
    assert said in str(told.value)


@pytest.mark.parametrize(
    "key", ["sk-0123456789abcdef", "gsk_Y2hhcmFjdGVycw01", "a1b2c3d4e5f6a7b8c9d0", "two words"]
)
def test_a_key_written_where_its_variable_should_stand_is_refused_and_not_repeated(tmp_path, key):
    write(tmp_path, f'[providers.acme]\nbase_url = "https://acme.example"\nkey = "{key}"\n')
    with pytest.raises(UsageError, match="should name the variable") as told:
        read_config([tmp_path], {})
    assert key not in str(told.value)
    assert 'key = "ACME_API_KEY"' in str(told.value)


def test_a_key_is_named_once_and_found_from_the_file_that_names_it(tmp_path):
    near, far = write(tmp_path / "near", '[encryption]\nkey_env = "MINE"\n'), tmp_path / "far"
    arn = "arn:aws:kms:us-east-1:123456789012:key/x"
    write(far, f'[encryption]\nkey_file = "store.key"\n[encryption.keys]\n"{arn}" = {{key_file = "/a/b"}}\n')

    assert read_config([far], {}).encryption["key_file"] == str(far / "store.key")
    assert read_config([near, far], {}).encryption == {"key_env": "MINE", "keys": {arn: {"key_file": "/a/b"}}}
    assert read_config([tmp_path], {}).encryption == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[encryption]\nkeyfile = "a"', "Did you mean `key_file`?"),
        ('[encryption]\nkey_file = "a"\nkms_key = "b"', "names several keys: key_file, kms_key"),
        ("[encryption]\nkey_file = 1", "`key_file` should be text"),
        ("encryption = 1", "Write [encryption]"),
        ('[encryption]\nkeys = "a"', "Write [encryption.keys]"),
        ('[encryption.keys]\n"arn:x" = "a"', "should be {key_file"),
        ('[encryption.keys]\n"arn:x" = {kms_key = "a"}', "should be {key_file"),
    ],
)
def test_what_is_wrong_with_a_key_is_said(tmp_path, text, said):
    write(tmp_path, text)

    with pytest.raises(UsageError) as told:
        read_config([tmp_path], {})

    assert said in str(told.value)


def test_the_store_is_where_the_option_the_environment_or_the_home_folder_has_it(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("PROCTOR_HOME", str(home))
    monkeypatch.delenv("PROCTOR_STORE", raising=False)
    assert locate() == (home, str(home / "proctor.db"))

    monkeypatch.setenv("PROCTOR_STORE", "postgresql://db/team")
    assert locate()[1] == "postgresql://db/team"
    assert locate(store="mine.db")[1] == "mine.db"


def test_the_home_folder_is_the_option_the_variable_or_the_users_data_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("PROCTOR_HOME", raising=False)
    monkeypatch.delenv("PROCTOR_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert locate()[0] == tmp_path / "data" / "proctor"
    assert locate()[1] == str(tmp_path / "data" / "proctor" / "proctor.db")

    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "variable"))
    assert locate()[0] == tmp_path / "variable"
    assert locate(home=str(tmp_path / "option"))[0] == tmp_path / "option"
