"""The version, and what it was installed with: for reports of faults and for scripts."""

import json
import platform
from importlib.util import find_spec

from proctor import __version__

EXTRAS = {
    "aws": "boto3",
    "crypto": "cryptography",
    "litellm": "litellm",
    "local": "xllamacpp",
    "mcp": "mcp",
    "otlp": "grpc",
    "pandas": "pandas",
    "parquet": "duckdb",
    "postgres": "psycopg",
    "ray": "ray",
}
"""Each optional dependency, with the module that it brings."""


def version_text(*, as_json: bool) -> str:
    """The line of `proctor --version`, or the document of `--version --json`."""
    if not as_json:
        return f"proctor {__version__}"
    # Counts files: a plain version does not load the store.
    from proctor.store.database import newest_schema

    document = {
        "version": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "storeSchema": newest_schema(),
        "extras": {name: find_spec(module) is not None for name, module in EXTRAS.items()},
    }
    return json.dumps(document, indent=2)
