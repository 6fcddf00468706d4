"""Plans that tests of the server start."""

PROMPTS = """
concurrency: 2
defaults: {model: scripted/echo}
matrix:
  - prompt: the tide comes in at noon
    expect: {contains: noon}
    runs: 3
  - prompt: something else
    expect: {contains: noon}
"""
"""Three succeed and one fails, at once."""
SLOW = """
concurrency: 2
defaults: {model: scripted/slow}
matrix: [{prompt: [one, two, three, four]}]
"""
"""Goes on until somebody stops it; needs the fixture `slow_model`."""
GATED = """
concurrency: 2
matrix: [{prompt: [one, two, three, four], model: "python/gate:answer"}]
"""
"""Goes on until there is a file `open`; needs the fixture `gate_model`."""
