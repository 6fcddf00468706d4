"""`[evaluation.models]`: judges that definitions name as Bedrock does run on models that can be reached."""

import pytest

from proctor.config import read_config
from proctor.errors import UsageError
from proctor.evaluators.definition import judge_of

CLAUDE = "anthropic.claude-sonnet-4-20250514-v1:0"


def model(model_id, names, kind="bedrockEvaluatorModelConfig"):
    return judge_of({kind: {"modelId": model_id}}, names)[0]


@pytest.mark.parametrize(
    ("model_id", "judge"),
    [
        (CLAUDE, "anthropic/sonnet"),
        (f"us.{CLAUDE}", "anthropic/sonnet"),
        (f"global.{CLAUDE}", "anthropic/sonnet"),
        ("amazon.nova-pro-v1:0", "openai/gpt-4o-mini"),
        ("arn:aws:bedrock:us-east-1:123:inference-profile/x", "openai/gpt-4o-mini"),
        ("openai/gpt-4o", "openai/gpt-4o"),
    ],
)
def test_an_id_is_mapped_or_has_the_default(model_id, judge):
    names = {CLAUDE: "anthropic/sonnet", "default": "openai/gpt-4o-mini"}

    assert model(model_id, names) == judge


def test_without_a_mapping_an_id_is_of_its_service():
    assert model(CLAUDE, {}) == f"litellm/bedrock/{CLAUDE}"
    assert model("gpt-5", {}, "responsesEvaluatorModelConfig") == "openai/gpt-5"


def test_an_entry_that_is_no_model_is_named(tmp_path):
    (tmp_path / "proctor.toml").write_text('[evaluation.models]\ndefault = "gpt-4o"\n')

    with pytest.raises(UsageError, match=r'\[evaluation.models\]: "default" should be "provider/model"'):
        read_config([tmp_path], {})
