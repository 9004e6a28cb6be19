"""How a kernel is judged: tasks, targets, reference processes, builds, runner, verdict."""
