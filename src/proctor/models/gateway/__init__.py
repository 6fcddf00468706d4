"""The gateway through which agents reach models, with a token per attempt.

`access` has tokens and the lazy start; `server` is the gateway itself, and loads the HTTP library.
"""
