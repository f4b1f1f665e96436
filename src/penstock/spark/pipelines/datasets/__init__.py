"""Datasets: plain functions from DataFrame to DataFrame, one module each.

build.py keeps some of them as tables of the lake; the report asks for the others when it is made.
"""
