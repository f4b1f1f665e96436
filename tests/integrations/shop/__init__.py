"""A small Django project: orders in two databases, and the tasks that are about them."""
