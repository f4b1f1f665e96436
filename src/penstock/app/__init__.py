"""What a process holds: the app, its registry of tasks, resources, settings and clock."""
