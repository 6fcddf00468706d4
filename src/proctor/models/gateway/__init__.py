"""The gateway: agents' only way to models, with a token for each attempt.

`access` says who may ask; `server` is the gateway itself, and loads the HTTP library.
"""
