"""The door: every verb once, for commands, pages, tools and programs, in a module for each noun."""
