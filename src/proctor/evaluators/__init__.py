"""Evaluators: built-in, defined by users, and functions or programs; what a task expects; judges."""
