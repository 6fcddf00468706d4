"""What callers of a server define: evaluators, online configurations, datasets, and their tags.

A verb writes the row of a resource, with its times and tags, and within the quota. What needs none of these
is asked of `Definitions`, `Datasets` and `Recommendations` of the store.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proctor.context import RunContext
from proctor.errors import QuotaReached
from proctor.json_values import JsonMap, JsonObject
from proctor.store.datasets import DRAFT, Datasets, Recommendations, StoredDataset
from proctor.store.definitions import (
    CONFIGS,
    EVALUATORS,
    DefinedResource,
    Definitions,
    EvaluatorDefinition,
    ListedEvaluator,
    OnlineConfig,
    Token,
)
from proctor.store.writer import timestamp

__all__ = [
    "DRAFT",
    "Datasets",
    "DefinedResource",
    "Definitions",
    "EvaluatorDefinition",
    "ListedEvaluator",
    "NewResource",
    "OnlineConfig",
    "Recommendations",
    "StoredDataset",
    "Token",
    "create_config",
    "create_dataset",
    "create_evaluator",
    "create_resource",
    "delete_config",
    "delete_dataset",
    "delete_evaluator",
    "delete_resource",
    "new_row",
    "tag_new",
    "update_config",
    "update_dataset",
    "update_evaluator",
    "update_resource",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewResource:
    """What every new resource has. A known token stands for the resource that it created."""

    id: str
    name: str
    arn: str
    token: Token
    description: str = ""
    kms_key_arn: str = ""
    """Encrypts its texts. Empty: the key of the store does."""
    tags: Mapping[str, str] = field(default_factory=dict)


def create_evaluator(
    ctx: RunContext, new: NewResource, *, level: str, config: JsonMap, most: int
) -> EvaluatorDefinition:
    """Create an evaluator. Raises `QuotaReached`."""
    definitions = ctx.store.definitions
    _check_quota(definitions.count(EVALUATORS), most, "evaluators")
    row = {**new_row(ctx, new), "level": level, "kind": next(iter(config))}
    stored = definitions.create_evaluator(row, config, new.token)
    tag_new(ctx, new, stored["id"])
    return stored


def update_evaluator(
    ctx: RunContext, evaluator_id: str, values: JsonMap, config: JsonMap | None, token: Token
) -> EvaluatorDefinition:
    """Change columns and, if given, the configuration of an evaluator that is not in use."""
    kind = {"kind": next(iter(config))} if config else {}
    row = {**values, **kind, "updatedAt": timestamp(ctx.now())}
    return ctx.store.definitions.update_evaluator(evaluator_id, row, config, token)


def delete_evaluator(ctx: RunContext, evaluator_id: str, arn: str) -> None:
    """Delete an evaluator that is not in use. Its scores stay."""
    ctx.store.definitions.evaluator(evaluator_id, with_config=False)
    _delete(ctx, ctx.store.definitions.delete_evaluator, evaluator_id, arn)


def create_config(
    ctx: RunContext, new: NewResource, *, document: JsonMap, enabled: bool, most: int
) -> OnlineConfig:
    """Create an online configuration. Raises `QuotaReached`."""
    definitions = ctx.store.definitions
    _check_quota(definitions.count(CONFIGS), most, "online configurations")
    row = new_row(ctx, new)
    del row["kmsKeyArn"]
    row |= {"enabled": int(enabled), "enabledAt": row["createdAt"] if enabled else None}
    stored = definitions.create_config(row, document, new.token)
    tag_new(ctx, new, stored["id"])
    return stored


def update_config(
    ctx: RunContext,
    config: OnlineConfig,
    *,
    document: JsonMap,
    description: str | None,
    enabled: bool | None,
    restarts: bool,
    token: Token,
) -> OnlineConfig:
    """Change a configuration; None: as it is. With `restarts`, further results are of a new evaluation."""
    now = timestamp(ctx.now())
    values: JsonObject = {"updatedAt": now, "failure": ""}
    if description is not None:
        values["description"] = description
    if enabled is not None:
        values["enabled"] = int(enabled)
        if enabled and not config["enabled"]:
            values["enabledAt"] = now
    if restarts:
        values["runId"] = ""
    return ctx.store.definitions.update_config(config["id"], values, document, token)


def delete_config(ctx: RunContext, config_id: str, arn: str) -> None:
    """Delete a configuration. Its results stay."""
    _delete(ctx, ctx.store.definitions.delete_config, config_id, arn)


def create_dataset(
    ctx: RunContext, new: NewResource, *, schema_type: str, examples: Mapping[str, JsonMap], most: int
) -> StoredDataset:
    """Create a dataset with the first examples of its draft. Raises `QuotaReached`."""
    _check_quota(ctx.store.datasets.count(), most, "datasets")
    row = {**new_row(ctx, new), "schemaType": schema_type}
    stored = ctx.store.datasets.create(row, examples, new.token)
    tag_new(ctx, new, stored["id"])
    return stored


def update_dataset(ctx: RunContext, dataset_id: str, description: str | None, token: Token) -> StoredDataset:
    """Change the description of a dataset; None: as it is."""
    described = {} if description is None else {"description": description}
    return ctx.store.datasets.update(dataset_id, {**described, "updatedAt": timestamp(ctx.now())}, token)


def delete_dataset(ctx: RunContext, dataset_id: str, arn: str) -> None:
    """Delete a dataset with its versions."""
    _delete(ctx, ctx.store.datasets.delete, dataset_id, arn)


def create_resource(
    ctx: RunContext, new: NewResource, kind: str, document: JsonMap, *, most: int
) -> DefinedResource:
    """Create an A/B test or a configuration bundle. Raises `QuotaReached`."""
    _check_quota(len(ctx.store.definitions.resources(kind, limit=most)), most, f"resources {kind}")
    row = new_row(ctx, new)
    del row["kmsKeyArn"]
    stored = ctx.store.definitions.create_resource({**row, "kind": kind}, document, new.token)
    tag_new(ctx, new, stored["id"])
    return stored


def update_resource(
    ctx: RunContext, row: DefinedResource, document: JsonMap, token: Token, *, name: str, description: str
) -> DefinedResource:
    """Change a resource. Raises `Contradiction` if it was changed meanwhile."""
    values = {"name": name, "description": description, "updatedAt": timestamp(ctx.now())}
    return ctx.store.definitions.update_resource(row, values, document, token)


def delete_resource(ctx: RunContext, resource_id: str, arn: str) -> None:
    """Delete an A/B test or a configuration bundle."""
    _delete(ctx, ctx.store.definitions.delete_resource, resource_id, arn)


def new_row(ctx: RunContext, new: NewResource) -> JsonObject:
    """The columns that the rows of all new resources have."""
    now = timestamp(ctx.now())
    return {
        "id": new.id,
        "name": new.name,
        "description": new.description,
        "kmsKeyArn": new.kms_key_arn,
        "createdAt": now,
        "updatedAt": now,
    }


def tag_new(ctx: RunContext, new: NewResource, stored_id: str) -> None:
    """Add its tags to a resource, unless it is one that was created before."""
    if new.tags and stored_id == new.id:
        ctx.store.definitions.tag(new.arn, new.tags)


def _check_quota(count: int, most: int, what: str) -> None:
    if count >= most:
        raise QuotaReached(f"There may be {most} {what}.")


def _delete(ctx: RunContext, delete: Callable[[str], None], resource_id: str, arn: str) -> None:
    delete(resource_id)
    ctx.store.definitions.untag(arn)
