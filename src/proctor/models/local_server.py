"""Serve a file of weights with llama.cpp, on a free port of this machine, until ended.

    python local_server.py WEIGHTS

A program of its own: it prints the address it answers at, on one line, and then waits to be ended.

Knows nothing of Proctor, and imports nothing of it.
"""

import signal
import sys

CONTEXT_TOKENS = 8192
"""All that this model was trained for."""


def main(weights: str) -> None:
    """Load the model, print the address, and wait."""
    # An extra, and only this program loads it.
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = weights
    parameters.model_alias = {"smollm2"}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = CONTEXT_TOKENS
    # One answer at a time: concurrent requests wait, so that they do not affect each other's answers.
    parameters.n_parallel = 1
    # Two threads on two cores that anything else uses fell from 94 tokens a second to 2.
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.offline = True
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
