"""Cron schedules and the slots they make."""
