"""Multi-actor simulation, turn by turn: the scenario, one turn, the state of a run and its files."""
