"""Penstock inside of web frameworks: a module each, which imports its framework and no other."""
