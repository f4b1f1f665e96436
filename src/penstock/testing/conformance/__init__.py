"""The conformance suite of the broker protocol: what a store must do to be a broker.

Its tests are the definition of the 35 verbs, by group: `core`, `control`, `look` and `bulk`, and
`models`, which compare a store with the memory broker after random operations. They need the extra
`conformance`, and one fixture, `broker`, that opens an empty store of yours on the test's clock:

    # my_store_suite.py
    import pytest
    from my_store import MyBroker

    pytest_plugins = ["penstock.testing.conformance.plugin"]

    @pytest.fixture
    def broker(clock, tmp_path):
        return MyBroker(tmp_path, clock=clock)

    $ pytest -p my_store_suite --pyargs penstock.testing.conformance.core

`plugin` says what else a store may offer to the tests.
"""
