"""The analyzer of experiments under the name that scripts of Scenario Lab import it by.

from batch_analyzer import BatchAnalyzer

python -m batch_analyzer experiments/my-experiment --report
"""

from proctor import BatchAnalyzer

__all__ = ["BatchAnalyzer"]


def main() -> int:
    """Run `proctor analyze` with the arguments of this program."""
    import sys

    from proctor.cli.main import main as run

    return run(["analyze", *sys.argv[1:]])


if __name__ == "__main__":
    raise SystemExit(main())
