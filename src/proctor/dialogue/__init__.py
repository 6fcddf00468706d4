"""Conversations between two roles: roles, their answers, turns and endings."""
