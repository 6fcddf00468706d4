"""`proctor.toml`: providers, prices and limits that hold for every plan."""

import pytest

from proctor.cli.config import read_config
from proctor.errors import UsageError


def write(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "proctor.toml").write_text(text)
    return folder


def test_without_a_file_nothing_is_configured(tmp_path):
    assert read_config([tmp_path], {}).files == ()


def test_a_provider_of_ones_own_is_named_with_its_address_and_the_variable_of_its_key(tmp_path):
    write(tmp_path, '[providers.my-vllm]\nbase_url = "http://127.0.0.1:9/v1"\nkey = "${TEAM_KEY}"\n')
    found = read_config([tmp_path], {"TEAM_KEY": "k-123"}).variables
    assert found == {"MY_VLLM_BASE_URL": "http://127.0.0.1:9/v1", "MY_VLLM_API_KEY": "k-123"}


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[price.x]\ninput = 1", "Did you mean `prices`"),
        ('[providers.x]\nbase_ulr = "y"', "Did you mean `base_url`"),
        ("[providers.x]\nbase_url = 3", "should be text"),
        ("[prices.x]\ninput = 1", "lacks `output`"),
        ("[prices.x]\ninput = -1\noutput = 1", "not negative"),
        ("[limits.x]\nconcurrency = true", "a number"),
        ("prices = 3", "is no section"),
        ("[prices]\nx = 3", "holds no settings"),
        ("[[[", "proctor.toml"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_the_nearest_name(tmp_path, text, said):
    write(tmp_path, text)
    with pytest.raises(UsageError, match=r"proctor\.toml") as told:
        read_config([tmp_path], {})
    assert said in str(told.value)
