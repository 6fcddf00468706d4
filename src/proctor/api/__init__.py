"""The library: run, resume, evaluate and compare from Python."""
