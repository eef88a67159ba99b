"""Training of the planner on whole turns: its reward, the turn as an environment, and the trainers."""
