"""The ways in which an agent's work can fail, and how one is told from the others.

The names are those of the evaluation service's interface: a family, `-category-`, and a kind.

Knows nothing of judges or sessions.
"""

from collections.abc import Mapping

OTHER = "other"
_BETWEEN = "-category-"

CATEGORIES: Mapping[str, str] = {
    "execution-error-category-authentication": "a call was refused for want of credentials or rights",
    "execution-error-category-resource-not-found": "something that was asked for is not there",
    "execution-error-category-service-errors": "a service or tool failed on its own side",
    "execution-error-category-rate-limiting": "a service refused because it was asked too often",
    "execution-error-category-formatting": "a call or an answer was malformed and could not be read",
    "execution-error-category-timeout": "something took too long and was given up",
    "execution-error-category-resource-exhaustion": "memory, disk, tokens or another means ran out",
    "execution-error-category-environment": "the place it worked in lacked something or was set up wrongly",
    "execution-error-category-tool-schema": "a tool was called with arguments its schema does not allow",
    "task-instruction-category-non-compliance": "an instruction was known and not obeyed",
    "task-instruction-category-problem-id": "the agent took the task for another one",
    "incorrect-actions-category-tool-selection": "another tool, or none, was called for",
    "incorrect-actions-category-poor-information-retrieval": "it looked in the wrong place, or for the wrong",
    "incorrect-actions-category-clarification": "it did not ask back where it had to, or asked without need",
    "incorrect-actions-category-inappropriate-info-request": "it asked for what is none of its business",
    "context-handling-error-category-context-handling-failures": "it lost or mixed up what was said",
    "hallucination-category-hall-capabilities": "it claimed to be able to do what it cannot",
    "hallucination-category-hall-misunderstand": "it stated what the material it had does not say",
    "hallucination-category-hall-usage": "it used something that does not exist",
    "hallucination-category-hall-history": "it referred to something that never happened",
    "hallucination-category-hall-params": "it made up the arguments of a call",
    "hallucination-category-fabricate-tool-outputs": "it told results of a tool that the tool did not give",
    "repetitive-behavior-category-repetition-tool": "it made the same call again and again",
    "repetitive-behavior-category-repetition-info": "it told or asked for the same thing again and again",
    "repetitive-behavior-category-step-repetition": "it went through steps again that were done",
    "orchestration-related-errors-category-reasoning-mismatch": "it did not do what it had reasoned",
    "orchestration-related-errors-category-goal-deviation": "it went after something else",
    "orchestration-related-errors-category-premature-termination": "it ended before it was done",
    "orchestration-related-errors-category-unaware-termination": "it did not notice its end",
    "llm-output-category-nonsensical": "what it said makes no sense",
    "configuration-mismatch-category-tool-definition": "a tool is described as something it is not",
    "coding-use-case-specific-failure-types-category-edge-case-oversights": "cases at the edge are forgotten",
    "coding-use-case-specific-failure-types-category-dependency-issues": "a dependency is missing or broken",
    OTHER: "it failed in a way that none of the others names",
}
"""What each means, in the words a judge is told it in."""


def family_of(category: str) -> str:
    """The family of a category, for people: `execution error`."""
    return category.partition(_BETWEEN)[0].replace("-", " ")


def kind_of(category: str) -> str:
    """What a category is within its family, for people: `tool schema`."""
    return (category.partition(_BETWEEN)[2] or category).replace("-", " ")
