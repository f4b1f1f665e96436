"""The processes that a worker starts: `python -m penstock.worker child|process|template|keep|run`.

Not for people: they use `penstock worker`. Each imports only what it needs: many may start at once.
"""

from __future__ import annotations

import gc
import sys

import msgspec


def _loaded() -> None:
    """What was imported stays until the end: no collection of garbage looks at it."""
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    gc.disable()  # imports leave no garbage that is worth looking for
    if sys.argv[1] == "child":
        from penstock.worker import child

        _loaded()
        child.main(msgspec.json.decode(sys.argv[2], type=child.ChildConfig))
    elif sys.argv[1] == "keep":
        from penstock.worker.detached import keeper

        _loaded()
        sys.exit(keeper.main(msgspec.json.decode(sys.argv[2], type=keeper.KeeperConfig)))
    elif sys.argv[1] == "run":
        from penstock.worker.detached import run_process

        _loaded()
        run_process.main(int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
    elif sys.argv[1] == "template":
        from penstock.worker import process_template

        _loaded()
        process_template.main(int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
    else:
        from penstock.worker import job_process

        _loaded()
        number, parent, words = map(int, sys.argv[2:5])
        job_process.main(number, parent, words, *sys.argv[5:])
