"""What cannot be played is refused at once, and told of what the user named."""

import pytest


@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_scenario_that_is_not_there_is_told_of_its_folder(proctor, command):
    done = proctor("scenario", command, "nowhere")

    assert done.returncode == 2
    assert "nowhere is no scenario: it has no scenario.yaml" in done.stderr


def test_what_cannot_be_estimated_is_named_as_it_was_given(proctor):
    done = proctor("scenario", "estimate", "nowhere")

    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no nowhere" in done.stderr
