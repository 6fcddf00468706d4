"""A prompt for a Python function: no repository, no worktree."""

from proctor.agent import Assignment
from proctor.errors import AgentError, AttemptError, ModelError, of_worker
from proctor.item import Item
from proctor.processes.scratch import scratch_folder
from proctor.runner import Outcome, Services, agent_settings, seed_of
from proctor.session import Iteration, Message

DONE = Outcome()


class FunctionRunner:
    """Runs items whose agent is a function."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """Call the function and record its answer. An exception ends the attempt as `agent_failed`."""
        services.record(Message(role="user", content=item.prompt))
        agent = services.agent(item.agent, agent_settings(item))
        with scratch_folder("function") as folder:
            assignment = Assignment(
                prompt=item.prompt,
                folder=folder,
                home=folder,
                environment=services.environment,
                attempt=services.session_id,
                model=item.model,
                seed=seed_of(item),
                models=services.models,
                access=None,
            )
            async with services.time_limit(item.settings.get("timeoutSec"), "the agent"):
                try:
                    await agent.work(assignment, services.record)
                except ModelError as error:
                    raise of_worker(error) from error
                except (AttemptError, TimeoutError):
                    raise
                except (Exception, SystemExit) as error:
                    raise AgentError(f"{item.agent}: {type(error).__name__}: {error}") from error
        services.record(Iteration(model=item.model))
        return DONE
