"""The systems that are measured, one file each, all with the same eight functions (see serve.py).

A file here is named after its library and imports it: absolute imports find the library, not us.
"""
