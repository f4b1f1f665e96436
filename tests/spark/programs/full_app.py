"""Imported by a Python worker of Spark: from then on its files cannot grow."""

import resource
import signal
import sys

from penstock import App

app = App()


@app.task(name="nap")
def nap(number: int, text: str) -> None: ...


if "pyspark.daemon" in str(sys.modules["__main__"].__spec__):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (300_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    )
