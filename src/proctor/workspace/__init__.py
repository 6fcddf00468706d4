"""Worktrees of coding sessions: setup, commit, merge queue and cleanup."""
