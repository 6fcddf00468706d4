"""A simulation of several actors, turn by turn: what is played, and how one turn is.

Knows nothing of plans, batches or the store: those who do hand in a definition, models and a place
for the files.
"""
