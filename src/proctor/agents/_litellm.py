"""What agents that call their models through litellm have in common.

They tell a failed call by the name of litellm's exception, which says what it was.

Knows nothing of any of these agents, and does not import litellm.
"""

from typing import Final

LITELLM_VARIABLES: Final = {
    # It would look for a newer list of prices on the network at every start.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    # They are written in Python, which would keep what they print to itself until there is much of it.
    "PYTHONUNBUFFERED": "1",
}

_MODEL_ERRORS = frozenset(
    {
        *("APIConnectionError", "APIError", "APIResponseValidationError", "AuthenticationError"),
        *("BadGatewayError", "BadRequestError", "ContentPolicyViolationError", "ContextWindowExceededError"),
        *("InternalServerError", "NotFoundError", "PermissionDeniedError", "RateLimitError"),
        *("ServiceUnavailableError", "Timeout", "UnprocessableEntityError", "UnsupportedParamsError"),
        # What OpenHands makes of them.
        *(
            "LLMAuthenticationError",
            "LLMBadRequestError",
            "LLMContextWindowExceedError",
            "LLMNoResponseError",
        ),
        *("LLMRateLimitError", "LLMServiceUnavailableError", "LLMTimeoutError"),
    }
)


def is_model_error(name: str) -> bool:
    """Whether an exception of this name means that the model failed, and not the agent."""
    return name in _MODEL_ERRORS
