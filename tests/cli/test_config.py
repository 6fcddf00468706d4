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


def test_servers_and_access_keys_of_several_files_are_joined_and_no_secret_is_shown(tmp_path):
    near = write(tmp_path / "near", '[serve.access_keys]\nMINE = "${SECRET}"\n')
    far = write(
        tmp_path / "far", '[serve]\nlog_group = "/team"\n[serve.access_keys]\nMINE = "m"\nOTHER = "o"\n'
    )
    found = read_config([near, far], {"SECRET": "s-123"})
    assert found.serve == {"log_group": "/team"}
    assert found.access_keys == {"MINE": "s-123", "OTHER": "o"}
    assert "s-123" not in repr(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits.x]\nconcurrency = true", "a number of calls: 1 or more"),
        ('[budget]\nusd = "much"', "usd = 50"),
        ("[budget]\nusd = 5\neur = 5", "usd = 50"),
        ("[serve.tokens.a]\nrole = 'run'\ntoken = 'secret'", "has no setting `token`"),
        ("[serve.tokens.proctor]\nrole = 'run'\ntoken_env = 'A'", "choose another name"),
        ("[serve.access_keys]\nAKID = 7", 'AKID = "secret"'),
        ('[encryption.keys]\n"arn:x" = {kms_key = "a"}', "[encryption.keys.arn:x] has no setting `kms_key`"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path, text, said):
    write(tmp_path, text)
    with pytest.raises(UsageError, match=r"proctor\.toml") as told:
        read_config([tmp_path], {})
    assert said in str(told.value)


@pytest.mark.parametrize("key", ["sk-0123456789abcdef", "two words"])
def test_a_key_written_where_its_variable_should_stand_is_refused_and_not_repeated(tmp_path, key):
    write(tmp_path, f'[providers.acme]\nbase_url = "https://acme.example"\nkey = "{key}"\n')
    with pytest.raises(UsageError, match="should name the variable") as told:
        read_config([tmp_path], {})
    assert key not in str(told.value)
    assert 'key = "ACME_API_KEY"' in str(told.value)


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
